"""Where the keys and values of token sequences lie: shared segments, private tails.

Particles share their beginnings: the prompt always, and soon most of what was generated, because the
genealogy of a particle filter coalesces (Jacob, Murray & Rubenthaler 2015: about T + N log N nodes after
T steps of N particles). So the store is a tree. A `Segment` holds one copy of a stretch that several
sequences go through; a `Tail` holds what one sequence has after it, in a slot of one common tensor.
"""

import heapq
import weakref
from collections.abc import Callable

import torch

from .kv_stretch import KVShape, Segment, Stretch, Tail
from .prefix import Prefix

TAIL_ROOM = 32  # tokens by which the slots grow
STALE_AFTER = 32  # batches after which the slot of a tail may be given to another one, before slots are added


class KVTree:
    """All stretches of one model.

    Attributes:
        tail_keys, tail_values: `(L, slots, Hkv, S, D)`.
        limit: bytes that may be held between batches.
        batch: number of the current batch; what it uses is safe until it is over.
    """

    def __init__(self, shape: KVShape, limit: int) -> None:
        self.shape = shape
        self.limit = limit
        self.batch = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything and release the memory."""
        self.segments: set[Segment] = set()
        self.tails: set[Tail] = set()
        self.tail_keys, self.tail_values = self.shape.zeros(0, 0)
        self._free_slots: list[int] = []
        self._holders: weakref.WeakKeyDictionary[Prefix, list[Stretch]] = weakref.WeakKeyDictionary()

    @property
    def n_bytes(self) -> int:
        """Held now."""
        slots, room = self.tail_keys.shape[1], self.tail_keys.shape[3]
        tokens = slots * room + sum(segment.capacity for segment in self.segments)
        return tokens * self.shape.bytes_per_token

    # Looking up

    def find(self, node: Prefix) -> tuple[Stretch | None, int]:
        """The longest beginning of `node` that is held: the stretch where it ends, and its length.

        A stretch that ends exactly there is preferred, because it can go on in place.
        """
        while node.parent is not None:
            best: Stretch | None = None
            for stretch in self._holders.get(node, ()):
                if stretch.holds(node):
                    best = stretch
                    if isinstance(stretch, Tail):
                        stretch.forget_dead()
                        if stretch.end == len(node):
                            break
            if best is not None:
                return best, len(node)
            node = node.parent
        return None, 0

    def use(self, stretch: Stretch | None) -> None:
        """Mark a stretch, and all before it, as needed by the current batch."""
        if stretch is not None:
            for each in stretch.line():
                each.last_used = self.batch

    def record(self, stretch: Stretch, nodes: list[Prefix]) -> None:
        """Note that the keys of `nodes` now follow in a stretch."""
        for node in nodes:
            stretch.nodes.append(weakref.ref(node))
            self._holders.setdefault(node, []).append(stretch)

    def unrecord(self, stretch: Stretch, length: int) -> None:
        """Take back what follows the first `length` tokens of a stretch."""
        for reference in stretch.nodes[length:]:
            node = reference()
            holders = None if node is None else self._holders.get(node)
            if holders is not None and stretch in holders:
                holders.remove(stretch)
        del stretch.nodes[length:]
        if isinstance(stretch, Segment) and stretch.anchor is not None and len(stretch.anchor) > stretch.end:
            stretch.anchor = None

    # Making room

    def add_segment(self, parent: Segment | None, start: int, capacity: int) -> Segment:
        """A new, empty segment."""
        segment = Segment(parent, start, capacity, self.shape)
        self.segments.add(segment)
        self.use(segment)
        return segment

    def add_tail(self, parent: Segment | None, start: int) -> Tail:
        """A new, empty tail."""
        if not self._free_slots:
            self._recycle_slots()
        tail = Tail(parent, start, heapq.heappop(self._free_slots))
        self.tails.add(tail)
        self.use(tail)
        return tail

    def _recycle_slots(self) -> None:
        for tail in list(self.tails):
            tail.forget_dead()
            idle = self.batch - tail.last_used
            if idle and (not tail.nodes or idle > STALE_AFTER) and not tail.pinned:
                self.drop(tail)
        if not self._free_slots:
            slots = self.tail_keys.shape[1]
            self._resize_slots(list(range(slots)), slots + max(4, slots // 2), self.tail_keys.shape[3])

    def reserve_tail_room(self, length: int) -> None:
        """Let every slot have room for `length` tokens."""
        if length > self.tail_keys.shape[3]:
            slots = self.tail_keys.shape[1]
            # In proportion, so that long tails are not copied over and over.
            room = -(-max(length, self.tail_keys.shape[3] * 5 // 4) // TAIL_ROOM) * TAIL_ROOM
            self._resize_slots(list(range(slots)), slots, room)

    def _resize_slots(self, kept: list[int], slots: int, room: int) -> None:
        """New tensors whose first slots hold what the slots `kept` held."""
        keys, values = self.shape.zeros(slots, room)
        common = min(room, self.tail_keys.shape[3])
        if kept and common:
            whole = kept == list(range(self.tail_keys.shape[1]))
            index = slice(None) if whole else torch.tensor(kept, device=self.shape.device)
            keys[:, : len(kept), :, :common] = self.tail_keys[:, index, :, :common]
            values[:, : len(kept), :, :common] = self.tail_values[:, index, :, :common]
        self._free_slots = sorted({*range(len(kept), slots), *self._moved(kept)})
        self.tail_keys, self.tail_values = keys, values

    def _moved(self, kept: list[int]) -> list[int]:
        free = set(self._free_slots)
        return [new for new, old in enumerate(kept) if old in free]

    def copy_tail(self, source: Tail, length: int, target: Tail) -> None:
        """Give the first `length` tokens of one tail to another, which is empty."""
        if length:
            keys, values = self.tail_keys, self.tail_values
            keys[:, target.slot, :, :length] = keys[:, source.slot, :, :length]
            values[:, target.slot, :, :length] = values[:, source.slot, :, :length]
        self._share_nodes(source, length, target)

    def copy_tail_to_segment(self, source: Tail, first: int, length: int, segment: Segment) -> None:
        """Append `length` tokens of a tail, from its token `first` on, to a segment."""
        held = len(segment.nodes)
        segment.reserve(held + length, self.shape)
        where = slice(first, first + length)
        segment.keys[:, :, held : held + length] = self.tail_keys[:, source.slot, :, where]
        segment.values[:, :, held : held + length] = self.tail_values[:, source.slot, :, where]
        self._share_nodes(source, length, segment, first)

    def _share_nodes(self, source: Stretch, length: int, target: Stretch, first: int = 0) -> None:
        nodes = [reference() for reference in source.nodes[first : first + length]]
        self.record(target, [node for node in nodes if node is not None])

    def shift_tails(self, tails: list[Tail], length: int, parent: Segment) -> None:
        """Let tails begin `length` tokens later, after a segment that now holds these tokens."""
        index = torch.tensor([tail.slot for tail in tails], device=self.shape.device)
        longest = max(len(tail.nodes) for tail in tails)
        for slots in (self.tail_keys, self.tail_values):
            slots[:, index, :, : longest - length] = slots[:, index, :, length:longest]
        for tail in tails:
            for reference in tail.nodes[:length]:
                node = reference()
                if node is not None:
                    self._holders[node].remove(tail)
            del tail.nodes[:length]
            if tail.parent is not None:
                tail.parent.dependents -= 1
            tail.parent = parent
            parent.dependents += 1
            tail.start += length
            if not tail.nodes:
                self.drop(tail)

    # Forgetting

    def drop(self, stretch: Stretch) -> None:
        """Forget one stretch, on which no other may depend."""
        self.unrecord(stretch, 0)
        if stretch.parent is not None:
            stretch.parent.dependents -= 1
        if isinstance(stretch, Tail):
            self.tails.discard(stretch)
            heapq.heappush(self._free_slots, stretch.slot)
        elif isinstance(stretch, Segment):
            self.segments.discard(stretch)

    def shrink(self, may_drop: Callable[[Stretch], bool]) -> None:
        """Forget the least recently used stretches until what is held is within the limit."""
        if self.n_bytes <= self.limit:
            return
        room = max((len(tail.nodes) for tail in self.tails), default=0)
        tokens = len(self.tails) * room + sum(segment.capacity for segment in self.segments)
        # A segment was used whenever anything after it was, so that this order drops dependents first.
        for stretch in sorted({*self.tails, *self.segments}, key=lambda each: (each.last_used, -each.start)):
            if tokens * self.shape.bytes_per_token <= self.limit:
                break
            if stretch.pinned or stretch.dependents or not may_drop(stretch):
                continue
            tokens -= stretch.capacity if isinstance(stretch, Segment) else room
            self.drop(stretch)
        self._compact()

    def give_back_room(self) -> None:
        """Release the memory of the slots if they are less than half used, as after moving a trunk."""
        room = max((len(tail.nodes) for tail in self.tails), default=0)
        needed = len(self.tails) * max(room, TAIL_ROOM)
        if self.tail_keys.shape[1] * self.tail_keys.shape[3] > 2 * needed:
            self._compact()

    def _compact(self) -> None:
        """Give back the memory of slots that no tail uses."""
        tails = sorted(self.tails, key=lambda tail: tail.slot)
        room = max((len(tail.nodes) for tail in tails), default=0)
        kept = [tail.slot for tail in tails]
        self._free_slots = []
        self._resize_slots(kept, len(kept), room)
        for slot, tail in enumerate(tails):
            tail.slot = slot
