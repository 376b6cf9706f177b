"""What must be computed for a batch of sequences, and where each new key will lie.

Every sequence is followed up to the longest beginning that is held. What is missing then forms a forest.
A long stretch that all its sequences share is computed once, into a segment; the short ends are computed
side by side, into tails. Nothing here computes: the result is a list of runs of tokens, in an order in
which each run comes after those it depends on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .kv_stretch import Segment, Stretch, Tail
from .kv_tree import KVTree
from .prefix import Prefix

SEGMENT_LENGTH = 32  # tokens from which a stretch gets a segment of its own
ROOT_SEGMENTS = 8  # unrelated beginnings that get segments however short they are


@dataclass(eq=False)
class Run:
    """Consecutive tokens of one sequence to be computed: `nodes` end at them, `stretch` takes their keys.

    first: index of the first of them in the stretch.
    """

    stretch: Stretch
    first: int
    nodes: list[Prefix]

    @property
    def position(self) -> int:
        """Of the first token."""
        return self.stretch.start + self.first


class Planner:
    """Turns one batch of sequences into runs; the store already has the places when it is done.

    Attributes:
        runs: what to compute, in order.
        reused: tokens of the sequences whose keys were found.
    """

    def __init__(self, tree: KVTree) -> None:
        self.runs: list[Run] = []
        self.reused = 0
        self._tree = tree
        self._extended: set[Stretch] = set()

    def add(self, prefixes: Sequence[Prefix], whole_segment: bool = False) -> None:
        """Plan the computation of the last token of each sequence, and of all it needs.

        Args:
            prefixes: distinct and not empty.
            whole_segment: let everything that is missing lie in segments.
        """
        groups: dict[tuple[Stretch | None, int], list[list[Prefix]]] = {}
        for prefix in prefixes:
            # The last token is computed in any case, for its logits; so look for what precedes it.
            assert prefix.parent is not None
            source, depth = self._tree.find(prefix.parent)
            self._tree.use(source)
            self.reused += depth
            missing = []
            node = prefix
            while len(node) > depth and node.parent is not None:
                missing.append(node)
                node = node.parent
            missing.reverse()
            groups.setdefault((source, depth), []).append(missing)
        for (source, depth), paths in groups.items():
            self._grow(source, depth, paths, 1 if whole_segment else SEGMENT_LENGTH)

    def _grow(self, source: Stretch | None, depth: int, paths: list[list[Prefix]], shortest: int) -> None:
        """Plan the paths, which all continue the same held sequence of `depth` tokens."""
        branches: dict[Prefix, list[list[Prefix]]] = {}
        for path in paths:
            branches.setdefault(path[0], []).append(path)
        # A prompt, however short, is what all will share.
        least = 1 if source is None and len(branches) <= ROOT_SEGMENTS else shortest
        for branch in branches.values():
            common = _common_length(branch)
            if common >= least:
                segment = self._new_segment(source, depth, branch[0][:common])
                rest = [path[common:] for path in branch if len(path) > common]
                if rest:
                    self._grow(segment, depth + common, rest, shortest)
                continue
            for path in branch:
                if len(path) >= least:
                    self._new_segment(source, depth, path)
                else:
                    self._new_tail(source, depth, path)

    def _new_segment(self, source: Stretch | None, depth: int, nodes: list[Prefix]) -> Segment:
        tree = self._tree
        if isinstance(source, Tail):
            # A segment cannot follow a tail: it takes a copy of the tail's beginning.
            copied = depth - source.start
            segment = tree.add_segment(source.parent, source.start, copied + len(nodes))
            tree.copy_tail_to_segment(source, 0, copied, segment)
        else:
            assert source is None or isinstance(source, Segment)
            segment = tree.add_segment(source, depth, len(nodes))
        segment.anchor = nodes[-1]
        self._run(segment, nodes)
        return segment

    def _new_tail(self, source: Stretch | None, depth: int, nodes: list[Prefix]) -> None:
        tree = self._tree
        tail: Tail
        if isinstance(source, Tail):
            source.forget_dead()
            if source.end == depth and source not in self._extended:
                tail = source
            else:
                tail = tree.add_tail(source.parent, source.start)
                tree.copy_tail(source, depth - source.start, tail)
        else:
            assert source is None or isinstance(source, Segment)
            tail = tree.add_tail(source, depth)
        tree.reserve_tail_room(len(tail.nodes) + len(nodes))
        self._extended.add(tail)
        self._run(tail, nodes)

    def _run(self, stretch: Stretch, nodes: list[Prefix]) -> None:
        run = Run(stretch, len(stretch.nodes), nodes)
        self._tree.record(stretch, nodes)
        self.runs.append(run)

    def undo(self) -> None:
        """Take back the places of everything planned, because it was not computed."""
        for run in reversed(self.runs):
            self._tree.unrecord(run.stretch, run.first)
            if not run.stretch.nodes and not run.stretch.dependents:
                self._tree.drop(run.stretch)


def _common_length(paths: list[list[Prefix]]) -> int:
    """How many nodes all paths, from the first on, have in common."""
    low, high = 1, min(len(path) for path in paths)
    while low < high:  # equal nodes have equal parents, so that halving finds the last common one
        middle = (low + high + 1) // 2
        if all(path[middle - 1] is paths[0][middle - 1] for path in paths):
            low = middle
        else:
            high = middle - 1
    return low


def cut_into_passes(runs: Sequence[Run], segment_piece: int, tokens_per_pass: int) -> list[list[Run]]:
    """Runs split between forward passes, in order.

    A pass may hold a run and what depends on it, because keys are written before they are read, layer by
    layer. Long runs are computed in pieces, so that the attention matrix of a prompt never exists whole.
    """
    passes: list[list[Run]] = [[]]
    room = tokens_per_pass
    for run in runs:
        for start in range(0, len(run.nodes), segment_piece):
            nodes = run.nodes[start : start + segment_piece]
            if len(nodes) > room:
                passes.append([])
                room = tokens_per_pass
            passes[-1].append(Run(run.stretch, run.first + start, nodes))
            room -= len(nodes)
    return passes
