"""Stretches of token sequences whose keys and values are held: segments that many share, tails of one.

Nodes are held weakly, except for the stretch of a segment that a request asked for as such: what nobody
can ask for again is forgotten, newest tokens first, and its room is written over.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .prefix import Prefix

SEGMENT_ROOM = 64  # spare tokens at the end of a segment that grows


@dataclass(frozen=True)
class KVShape:
    """What one token's keys and values are: `(n_layers, n_heads, key_width)` and the same for values."""

    n_layers: int
    n_heads: int
    key_width: int
    value_width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        """Of keys and values in all layers."""
        return self.n_layers * self.n_heads * (self.key_width + self.value_width) * self.dtype.itemsize

    def zeros(self, *size: int) -> tuple[Tensor, Tensor]:
        """Empty keys and values for `(..., S)` places: `(L, ..., Hkv, S, D)` each.

        Zeros, because what is masked is still multiplied, by 0, and memory as found may hold NaN.
        """
        leading = (self.n_layers, *size[:-1], self.n_heads, size[-1])
        keys = torch.zeros((*leading, self.key_width), dtype=self.dtype, device=self.device)
        values = torch.zeros((*leading, self.value_width), dtype=self.dtype, device=self.device)
        return keys, values


class Stretch:
    """Consecutive tokens of one sequence, from position `start`, whose keys and values are held.

    Attributes:
        parent: the segment that holds what precedes position `start`; None if that is nothing.
        start: position of the first token.
        nodes: the sequences that end at each of the tokens, weakly.
        last_used: number of the batch that needed it last.
        pinned: whether it stays until everything is forgotten.
        dependents: how many stretches have it as parent.
    """

    def __init__(self, parent: "Segment | None", start: int) -> None:
        self.parent = parent
        self.start = start
        self.nodes: list[weakref.ref[Prefix]] = []
        self.last_used = 0
        self.pinned = False
        self.dependents = 0
        if parent is not None:
            parent.dependents += 1

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + len(self.nodes)

    def forget_dead(self) -> None:
        """Drop the tokens at the end that nobody can ask for again (a node keeps those before it alive)."""
        while self.nodes and self.nodes[-1]() is None:
            self.nodes.pop()

    def holds(self, node: Prefix) -> bool:
        """Whether the keys of the last token of `node` lie here."""
        index = len(node) - 1 - self.start
        return 0 <= index < len(self.nodes) and self.nodes[index]() is node

    def line(self) -> "Iterator[Stretch]":
        """This stretch and all before it, last first."""
        here: Stretch | None = self
        while here is not None:
            yield here
            here = here.parent


class Segment(Stretch):
    """A stretch with its own tensors, which any number of sequences go through.

    keys, values: `(L, Hkv, capacity, D)`.
    anchor: the longest node here that is held strongly.
    """

    def __init__(self, parent: "Segment | None", start: int, capacity: int, shape: KVShape) -> None:
        super().__init__(parent, start)
        self.keys, self.values = shape.zeros(capacity)
        self.anchor: Prefix | None = None

    @property
    def capacity(self) -> int:
        """Tokens there is room for."""
        return self.keys.shape[2]

    def reserve(self, capacity: int, shape: KVShape) -> None:
        """Make room, keeping what is there."""
        if capacity <= self.capacity:
            return
        held = len(self.nodes)
        keys, values = shape.zeros(max(capacity + SEGMENT_ROOM, self.capacity * 9 // 8))
        keys[:, :, :held] = self.keys[:, :, :held]
        values[:, :, :held] = self.values[:, :, :held]
        self.keys, self.values = keys, values


class Tail(Stretch):
    """A stretch in a slot of the common tensor, which one sequence goes through."""

    def __init__(self, parent: "Segment | None", start: int, slot: int) -> None:
        super().__init__(parent, start)
        self.slot = slot
