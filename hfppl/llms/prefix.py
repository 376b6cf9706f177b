"""Token-id sequences that share their beginnings.

Particles ask about sequences that differ only at the end, again and again. Held as tuples, each
question would hash and compare hundreds of ids. Here a sequence is a node of a tree: adding a token
is one dictionary look-up, equal sequences of one tree are one object, and a cache is keyed by identity.
"""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from ..logits import LogitsRow


class Prefix(Sequence[int]):
    """A sequence of token ids, interned: made by `Prefix.root()`, `child` and `descend` only.

    A parent holds its children weakly, so a sequence lives as long as somebody needs it. Two threads
    that add the same token at the same instant may get two nodes for it: the cost is one repeated
    evaluation, never a wrong answer.
    """

    __slots__ = ("__weakref__", "_children", "_length", "parent", "row", "token_id")

    parent: "Prefix | None"
    token_id: int  # the last id; -1 at the root
    row: "tuple[int, weakref.ref[LogitsRow]] | None"  # the row cache's: generation and answer

    def __init__(self, parent: "Prefix | None", token_id: int) -> None:
        self.parent = parent
        self.token_id = token_id
        self.row = None
        self._length: int = 0 if parent is None else len(parent) + 1
        self._children: dict[int, weakref.ref[Prefix]] | None = None

    @classmethod
    def root(cls) -> "Prefix":
        """The empty sequence of a new tree."""
        return cls(None, -1)

    def child(self, token_id: int) -> "Prefix":
        """This sequence and one more token."""
        if self._children is None:
            self._children = {}
        reference = self._children.get(token_id)
        node = None if reference is None else reference()
        if node is None:
            node = Prefix(self, token_id)
            self._children[token_id] = weakref.ref(node)
        return node

    def descend(self, token_ids: Iterable[int]) -> "Prefix":
        """This sequence and some more tokens."""
        node = self
        for token_id in token_ids:
            node = node.child(token_id)
        return node

    def path(self) -> "list[Prefix]":
        """Every non-empty beginning of this sequence, shortest first, itself last."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def token_ids(self, start: int = 0) -> list[int]:
        """The ids from position `start` on."""
        ids = []
        node = self
        while node.parent is not None and node._length > start:
            ids.append(node.token_id)
            node = node.parent
        ids.reverse()
        return ids

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self.token_ids())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self.token_ids()[index]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self) >> 4

    def __deepcopy__(self, memo: dict[int, Any]) -> "Prefix":
        return self

    def __repr__(self) -> str:
        return f"Prefix({self.token_ids()})"
