"""What a constraint is: a set of texts; and the state of one text on its way into that set."""

import abc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from ..errors import ArgumentError
from ..tokens import Token, TokenMask, Vocabulary

if TYPE_CHECKING:
    from .combined import And, Not


class HasTokens(Protocol):
    """A language model, as far as a constraint needs to know it."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The ids that end a text."""
        ...


class Constraint(abc.ABC):
    """A set of texts. Made once, shared by all; `start` gives each particle a state of its own.

    `a & b` is the texts of both; `~a` is every text that is not one of `a`.
    """

    def start(self, where: Any) -> "State":
        """The state of a text that begins here.

        Args:
            where: an `LMContext`, whose next token is the first of the text; or a language model, if the
                text begins with the bytes of its first token.
        """
        lm: HasTokens = getattr(where, "lm", where)
        if not hasattr(lm, "vocabulary") or not hasattr(lm, "eos_token_ids"):
            raise ArgumentError(f"a constraint starts in an LMContext or a language model, not in {where!r}")
        pieces = where.partial_pieces() if hasattr(where, "partial_pieces") else {}
        return self._start(Beginning(lm.vocabulary, lm.eos_token_ids, pieces))

    @abc.abstractmethod
    def _start(self, beginning: "Beginning") -> "State":
        """The state of the empty text."""

    def __and__(self, other: object) -> "And":
        from .combined import And

        return And(self, other) if isinstance(other, Constraint) else NotImplemented

    def __invert__(self) -> "Not":
        from .combined import Not

        return Not(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Constraint":
        return self


class Beginning:
    """Where a text begins: among which tokens, and which of them count with a part of their bytes only.

    Attributes:
        vocabulary: the tokens.
        eos_token_ids: the ids that end the text.
        pieces: what the first token adds to the text, for ids where that is not all of its bytes.
    """

    def __init__(
        self, vocabulary: Vocabulary, eos_token_ids: Iterable[int], pieces: Mapping[int, bytes]
    ) -> None:
        self.vocabulary = vocabulary
        self.eos_token_ids = frozenset(eos_token_ids)
        self.pieces = pieces


class State(abc.ABC):
    """How far one text has come. A copy of a particle has its own.

    A state that no text of the constraint can follow is dead: its masks are empty, and it cannot end.
    """

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._at_start = True
        self._ended = False

    # --- what may come next

    @property
    def can_end(self) -> bool:
        """Whether the text so far is one of the constraint's."""
        return not self._ended and self._accepts()

    def mask(self) -> TokenMask:
        """The tokens that may come next, the end tokens among them if the text may end here."""
        text = self.text_mask()
        return text | self._end_mask if self.can_end else text

    def text_mask(self) -> TokenMask:
        """The tokens that may come next and go on with the text."""
        return self._no_tokens if self._ended else self._text_mask()

    @property
    def is_lazy(self) -> bool:
        """Whether `mask` is costly, so that candidates had better be tested one by one."""
        return False

    def candidates(self) -> TokenMask:
        """What `mask` is part of, at little cost. End tokens are in it, whether or not they may come."""
        return self.mask()

    def allows(self, token_id: int) -> bool:
        """Whether one of the candidates may come next."""
        return token_id in self.mask()

    # --- going on

    def advance(self, token: int | Token) -> bool:
        """Take a token into the text.

        Returns:
            Whether it was allowed. If not, the state is dead from here on.
        """
        vocabulary = self._beginning.vocabulary
        if isinstance(token, Token):
            vocabulary.check_same(token.lm.vocabulary, f"the token {token!r}")
        token_id = vocabulary.check_id(int(token))
        if token_id in self._beginning.eos_token_ids:
            allowed = self.can_end
            self._ended = True
            return allowed
        if self._ended:
            return False
        allowed = self._advance(token_id)
        if not vocabulary.special[token_id]:
            self._at_start = False
        self._ended = not allowed
        return allowed

    def advance_bytes(self, data: bytes) -> bool:
        """Take bytes into the text, whatever tokens they came in.

        Returns:
            Whether they were allowed. If not, the state is dead from here on.
        """
        if self._ended:
            return not data
        allowed = self._advance_bytes(data)
        self._at_start = self._at_start and not data
        self._ended = not allowed
        return allowed

    # --- for subclasses

    @abc.abstractmethod
    def _accepts(self) -> bool: ...

    @abc.abstractmethod
    def _text_mask(self) -> TokenMask: ...

    @abc.abstractmethod
    def _advance(self, token_id: int) -> bool: ...

    @abc.abstractmethod
    def _advance_bytes(self, data: bytes) -> bool: ...

    def _text_mask_among(self, mask: TokenMask) -> TokenMask:
        """Which tokens of `mask` may come next."""
        both: TokenMask = mask & self.text_mask()
        return both

    def _piece(self, token_id: int) -> bytes:
        """What a token adds to the text here."""
        beginning = self._beginning
        if self._at_start and token_id in beginning.pieces:
            return beginning.pieces[token_id]
        return beginning.vocabulary.byte_vocab[token_id]

    @property
    def _end_mask(self) -> TokenMask:
        return TokenMask.from_ids(self._beginning.vocabulary, self._beginning.eos_token_ids)

    @property
    def _no_tokens(self) -> TokenMask:
        return TokenMask.from_ids(self._beginning.vocabulary, ())

    def copy(self) -> Self:
        """A state that goes on from here on its own."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._part_ways()
        return new

    def _part_ways(self) -> None:  # noqa: B027  # most states hold nothing of the kind
        """Make one's own what a copy must not share with its original."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __copy__(self) -> Self:
        return self.copy()
