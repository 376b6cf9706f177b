"""One forward pass over packed tokens: where their keys go, and which keys each of them sees."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .kv_plan import Run
from .kv_stretch import Segment, Tail
from .kv_tree import KVTree
from .prefix import Prefix
from .tree_attention import Block

GATHER_BELOW = 0.5  # share of used slots in a range below which they are copied out instead of read through


class PackedPass:
    """The tokens of some runs as one row, and all that the attention layers must know about them.

    Attributes:
        input_ids, position_ids: `(1, T)`.
        own, shared: the blocks of keys that the tokens see.
    """

    def __init__(self, tree: KVTree, runs: Sequence[Run]) -> None:
        self._tree = tree
        self._device = tree.shape.device
        tails = [run for run in runs if isinstance(run.stretch, Tail)]
        # Tails in the order of their slots, so that a block of them is a view of the common tensor.
        tails.sort(key=lambda run: run.stretch.slot if isinstance(run.stretch, Tail) else 0)
        segments = [run for run in runs if isinstance(run.stretch, Segment)]
        self._runs = segments + tails
        self._starts: dict[int, int] = {}
        self.index: dict[Prefix, int] = {}
        ids: list[int] = []
        positions: list[int] = []
        for run in self._runs:
            self._starts[id(run)] = len(ids)
            for offset, node in enumerate(run.nodes):
                self.index[node] = len(ids)
                ids.append(node.token_id)
                positions.append(run.position + offset)
        self.n_tokens = len(ids)
        self.input_ids = torch.tensor([ids], device=self._device)
        self.position_ids = torch.tensor([positions], device=self._device)
        self._positions = positions
        self._segment_writes = [
            (run.stretch, run.first, self._starts[id(run)], len(run.nodes))
            for run in segments
            if isinstance(run.stretch, Segment)
        ]
        self._tail_write = self._plan_tail_write(tails)
        self.own = [self._segment_block(run) for run in segments] + self._tail_blocks(tails)
        self.shared = self._shared_blocks()

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens' keys and values `(1, Hkv, T, D)` of one layer."""
        for segment, first, start, length in self._segment_writes:
            segment.keys[layer, :, first : first + length] = keys[0, :, start : start + length]
            segment.values[layer, :, first : first + length] = values[0, :, start : start + length]
        if self._tail_write is not None:
            start, slots, places = self._tail_write
            for store, new in ((self._tree.tail_keys, keys), (self._tree.tail_values, values)):
                store[layer].transpose(1, 2)[slots, places] = new[0, :, start:].transpose(0, 1)

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=self._device)

    def _plan_tail_write(self, tails: list[Run]) -> tuple[int, Tensor, Tensor] | None:
        if not tails:
            return None
        slots: list[int] = []
        places: list[int] = []
        for run in tails:
            assert isinstance(run.stretch, Tail)
            slots += [run.stretch.slot] * len(run.nodes)
            places += range(run.first, run.first + len(run.nodes))
        return self._starts[id(tails[0])], self._tensor(slots), self._tensor(places)

    def _segment_block(self, run: Run) -> Block:
        """The tokens of a segment to the segment itself, up to each of them."""
        assert isinstance(run.stretch, Segment)
        end = run.first + len(run.nodes)
        start = self._starts[id(run)]
        indices = list(range(start, start + len(run.nodes)))
        everything = self.n_tokens == len(run.nodes)
        return Block(
            keys=run.stretch.keys[:, None, :, :end],
            values=run.stretch.values[:, None, :, :end],
            queries=len(run.nodes),
            offsets=self._tensor([list(range(run.first, end))]),
            causal=end > 1,
            first=run.first,
            last=end - 1,
            take=None if everything else self._tensor(indices),
            targets=None if everything else self._tensor(indices),
        )

    def _tail_blocks(self, tails: list[Run]) -> list[Block]:
        """The tokens of tails to their own tails; runs of similar length together."""
        groups: dict[int, list[Run]] = {}
        for run in tails:
            groups.setdefault((len(run.nodes) - 1).bit_length(), []).append(run)
        return [self._tail_block(group) for group in groups.values()]

    def _tail_block(self, runs: list[Run]) -> Block:
        slots = [run.stretch.slot for run in runs if isinstance(run.stretch, Tail)]
        low, high = slots[0], slots[-1] + 1
        gathered = len(slots) < GATHER_BELOW * (high - low)
        queries = max(len(run.nodes) for run in runs)
        n_rows = len(slots) if gathered else high - low
        take, offsets = [0] * (n_rows * queries), [0] * (n_rows * queries)
        give, targets = [], []
        for index, run in enumerate(runs):
            row = index if gathered else slots[index] - low
            start = self._starts[id(run)]
            for offset in range(len(run.nodes)):
                place = row * queries + offset
                take[place] = start + offset
                offsets[place] = run.first + offset
                give.append(place)
                targets.append(start + offset)
        last = max(offsets)
        view = slice(None) if gathered else slice(low, high)
        full = give == list(range(n_rows * queries))
        everything = targets == list(range(self.n_tokens))
        return Block(
            keys=self._tree.tail_keys[:, view, :, : last + 1],
            values=self._tree.tail_values[:, view, :, : last + 1],
            queries=queries,
            offsets=self._tensor(offsets).view(n_rows, queries),
            causal=not (full and queries == 1 and min(offsets) == last),
            first=min(offsets),
            last=last,
            rows=self._tensor(slots) if gathered else None,
            take=None if full and everything else self._tensor(take),
            give=None if full else self._tensor(give),
            targets=None if everything else self._tensor(targets),
        )

    def _shared_blocks(self) -> list[Block]:
        """For each segment, and each length of it that somebody sees, the tokens that do."""
        viewers: dict[tuple[Segment, int], list[int]] = {}
        for run in self._runs:
            start = self._starts[id(run)]
            tokens = range(start, start + len(run.nodes))
            end = run.stretch.start
            segment = run.stretch.parent
            while segment is not None:
                viewers.setdefault((segment, end - segment.start), []).extend(tokens)
                end, segment = segment.start, segment.parent
        blocks = []
        for (segment, length), seen_by in viewers.items():
            if not length:
                continue
            everything = seen_by == list(range(self.n_tokens))
            offsets = [self._positions[token] - segment.start for token in seen_by]
            blocks.append(
                Block(
                    keys=segment.keys[:, None, :, :length],
                    values=segment.values[:, None, :, :length],
                    queries=len(seen_by),
                    offsets=self._tensor([offsets]),
                    causal=False,
                    first=min(offsets),
                    last=max(offsets),
                    take=None if everything else self._tensor(seen_by),
                    targets=None if everything else self._tensor(seen_by),
                )
            )
        return blocks
