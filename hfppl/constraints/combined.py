"""Constraints made of others, and a limit on tokens."""

import functools
from typing import Any

from ..errors import ArgumentError
from ..tokens import TokenMask
from .constraint import Beginning, Constraint, State
from .grammar import Grammar
from .predicate import text_tokens


class And(Constraint):
    """The texts of all the constraints."""

    def __init__(self, *constraints: Constraint) -> None:
        """Raises: ArgumentError, for none at all, or for what is not a constraint."""
        if not constraints or not all(isinstance(part, Constraint) for part in constraints):
            raise ArgumentError(f"And takes constraints, at least one, not {constraints!r}")
        self._parts = constraints

    def _start(self, beginning: Beginning) -> State:
        return AndState(beginning, [part._start(beginning) for part in self._parts])

    def __repr__(self) -> str:
        return " & ".join(repr(part) for part in self._parts)


class AndState(State):
    """Where a text stands in several constraints; what is lazy among them is asked last."""

    def __init__(self, beginning: Beginning, parts: list[State]) -> None:
        super().__init__(beginning)
        self._parts = sorted(parts, key=lambda part: part.is_lazy)

    @property
    def is_lazy(self) -> bool:
        """Whether one of them is."""
        return any(part.is_lazy for part in self._parts)

    def candidates(self) -> TokenMask:
        """The candidates of all."""
        mask = self._parts[0].candidates()
        for part in self._parts[1:]:
            mask = mask & part.candidates()
        return mask

    def allows(self, token_id: int) -> bool:
        """Whether those allow it whose candidates are more than that."""
        return all(part.allows(token_id) for part in self._parts if part.is_lazy)

    def _accepts(self) -> bool:
        return all(part.can_end for part in self._parts)

    def _text_mask(self) -> TokenMask:
        mask = self._parts[0].text_mask()
        for part in self._parts[1:]:
            mask = part._text_mask_among(mask)
        return mask

    def _text_mask_among(self, mask: TokenMask) -> TokenMask:
        for part in self._parts:
            mask = part._text_mask_among(mask)
        return mask

    def _advance(self, token_id: int) -> bool:
        return all([part.advance(token_id) for part in self._parts])

    def _advance_bytes(self, data: bytes) -> bool:
        return all([part.advance_bytes(data) for part in self._parts])

    def _part_ways(self) -> None:
        self._parts = [part.copy() for part in self._parts]


class Not(Constraint):
    """Every text that is not one of the constraint's.

    Which it is shows only at the end: on the way, every text is still possible, so a particle may come
    to its limit without having found an end.
    """

    def __init__(self, constraint: Constraint) -> None:
        """Raises: ArgumentError, for what is not a constraint."""
        if not isinstance(constraint, Constraint):
            raise ArgumentError(f"Not takes a constraint, not {constraint!r}")
        self._inner = constraint

    def _start(self, beginning: Beginning) -> State:
        return AndState(
            beginning, [_any_text()._start(beginning), NotState(beginning, self._inner._start(beginning))]
        )

    def __repr__(self) -> str:
        return f"~({self._inner!r})"


class NotState(State):
    """A text that may still become one of the constraint's, or no longer."""

    def __init__(self, beginning: Beginning, inner: State) -> None:
        super().__init__(beginning)
        self._inner = inner

    def _accepts(self) -> bool:
        return not self._inner.can_end

    def _text_mask(self) -> TokenMask:
        return text_tokens(self._beginning)

    def _advance(self, token_id: int) -> bool:
        self._inner.advance(token_id)
        return not self._beginning.vocabulary.special[token_id]

    def _advance_bytes(self, data: bytes) -> bool:
        self._inner.advance_bytes(data)
        return True

    def _part_ways(self) -> None:
        self._inner = self._inner.copy()


class TokenLimit(Constraint):
    """The texts of at most so many tokens, the end token not counted. To be combined with others."""

    def __init__(self, max_tokens: int) -> None:
        """Raises: ArgumentError, unless it is a whole number of at least 0."""
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
            raise ArgumentError(f"a limit is a whole number of tokens, at least 0, not {max_tokens!r}")
        self.max_tokens = max_tokens

    def start(self, where: Any) -> State:
        """Alone, it is any text: not what special tokens or broken characters make."""
        return And(_any_text(), self).start(where)

    def _start(self, beginning: Beginning) -> State:
        return TokenLimitState(beginning, self.max_tokens)

    def __repr__(self) -> str:
        return f"TokenLimit({self.max_tokens})"


class TokenLimitState(State):
    """How many tokens are left."""

    def __init__(self, beginning: Beginning, left: int) -> None:
        super().__init__(beginning)
        self._left = left

    def _accepts(self) -> bool:
        return True

    def _text_mask(self) -> TokenMask:
        return self._any_tokens if self._left else self._no_tokens

    @property
    def _any_tokens(self) -> TokenMask:
        vocabulary = self._beginning.vocabulary
        allowed = vocabulary.exists.copy()
        allowed[list(self._beginning.eos_token_ids)] = False
        return TokenMask(vocabulary, allowed)

    def _advance(self, token_id: int) -> bool:
        self._left -= 1
        return self._left >= 0

    def _advance_bytes(self, data: bytes) -> bool:
        return True


@functools.cache
def _any_text() -> Constraint:
    return Grammar(r"start: /(.|\n)*/")
