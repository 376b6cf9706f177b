"""Moving what tails have in common into shared segments, as the genealogy of particles coalesces.

After resampling, most particles descend from few. The stretch that their tails share is stored once for
each, and attended to once for each; moved to a segment it costs one copy and one product. Where nobody
else continues the segment before, it simply grows, so that a long run keeps one trunk and short tails.
"""

import statistics

from .kv_stretch import Segment, Tail
from .kv_tree import KVTree

TRUNK_LENGTH = 32  # tokens in common from which a move pays
OUTLIER = 4  # times longer than the median, a tail is moved by itself
SMALLEST_SHARE = 4  # some of the tails in use are moved if they are at least this fraction (1 / n) of them,
FAMILY_LENGTH = 128  # and have this much in common: families that are still apart may yet become one
IN_USE = 16  # batches within which a tail was used


def promote_trunks(tree: KVTree) -> None:
    """Move common beginnings of tails, and tails far longer than others; drop unreachable segments."""
    siblings: dict[tuple[Segment | None, int], list[Tail]] = {}
    tips = []  # held while we work: another thread may let go of nodes at any time
    lengths = []
    for tail in tree.tails:
        tail.forget_dead()
        tip = tail.nodes[-1]() if tail.nodes else None
        if tip is None:
            continue
        tips.append(tip)
        lengths.append(len(tail.nodes))
        if len(tail.nodes) >= TRUNK_LENGTH and tree.batch - tail.last_used <= IN_USE:
            siblings.setdefault((tail.parent, tail.start), []).append(tail)
    # Every slot is as long as the longest tail, so that one such tail costs what many do.
    outlier = OUTLIER * max(TRUNK_LENGTH, statistics.median(lengths)) if lengths else 0
    for (parent, start), tails in siblings.items():
        clusters: dict[object, list[Tail]] = {}
        for tail in tails:
            clusters.setdefault(tail.nodes[TRUNK_LENGTH - 1](), []).append(tail)
        for cluster in clusters.values():
            length = _common_length(cluster)
            is_trunk = len(cluster) == len(tails)
            is_family = length >= FAMILY_LENGTH and len(cluster) >= max(2, len(tails) / SMALLEST_SHARE)
            if is_trunk or is_family or length > outlier:
                _promote(tree, parent, start, cluster, length)
    for segment in list(tree.segments):
        segment.forget_dead()
        if not segment.nodes and not segment.dependents and not segment.pinned:
            tree.drop(segment)
    tree.give_back_room()


def _promote(tree: KVTree, parent: Segment | None, start: int, tails: list[Tail], length: int) -> None:
    if parent is not None:
        parent.forget_dead()
    if parent is None or parent.end != start:
        parent = tree.add_segment(parent, start, length)
    parent.last_used = max(parent.last_used, max(tail.last_used for tail in tails))
    tree.copy_tail_to_segment(tails[0], 0, length, parent)
    tree.shift_tails(tails, length, parent)


def _common_length(tails: list[Tail]) -> int:
    low, high = TRUNK_LENGTH, min(len(tail.nodes) for tail in tails)
    while low < high:  # the nodes are alive, and equal nodes have equal parents
        middle = (low + high + 1) // 2
        if all(tail.nodes[middle - 1]() is tails[0].nodes[middle - 1]() for tail in tails):
            low = middle
        else:
            high = middle - 1
    return low
