"""A generation in progress."""

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..display import Bars, bars_html, note, prompt_and_text_html, visible
from ..errors import ArgumentError
from ..errors import NoMassError as NullMask
from ..llms.prefix import Prefix
from ..logits import LogitsRow, Mass
from ..tokens import TokenMask, TokenSequence, decode
from ..turn import current_turn
from .next_token import LMNextToken, LMTokenMask
from .values import check_temperature, token_bars

if TYPE_CHECKING:
    from ..llms import CachedCausalLM


class _State:
    """Where a context stands. Never changed: a context swaps one for another, when all has gone well."""

    __slots__ = ("added", "bare", "mask", "mass", "prefix", "row", "text")

    def __init__(
        self,
        prefix: Prefix,
        text: bytes,
        bare: bool,
        added: int = 0,
        mask: TokenMask | None = None,
        row: LogitsRow | None = None,
        mass: Mass | None = None,
    ) -> None:
        self.prefix = prefix  # the tokens so far, prompt included
        self.text = text  # the bytes after the prompt
        self.bare = bare  # whether there is nothing yet but special tokens
        self.added = added  # bytes of the text that the last token added
        self.mask = mask  # what the next token may be; None for anything
        self.row = row  # what the language model says of it, once somebody has asked
        self.mass = mass  # of the mask, in that row

    def __deepcopy__(self, memo: dict[int, Any]) -> "_State":
        return self


__all__ = ["LMContext", "LMNextToken", "LMTokenMask", "NullMask"]  # the last, a historical name

_OWN = {
    "_redrawn",
    "_state",
    "_temp",
    "lm",
    "prompt_string_length",
    "prompt_token_count",
    "show_eos",
    "show_prompt",
}


class LMContext:
    """A generation in progress: the tokens so far, and which tokens are still possible for the next one.

    Two kinds of event advance it. An event of `next_token()` adds a token and lifts the mask; an event
    of `mask_dist(mask)` narrows the mask. Making a context, and intervening on `next_token()`, asks
    the language model nothing. An event of probability zero leaves the context exactly as it was, and
    so does an exception or a cancellation.

    Attributes:
        lm: the language model.
        prompt_token_count: number of tokens in the prompt.
        prompt_string_length: number of characters in the prompt's text.
        show_prompt: whether `str(context)` begins with the prompt.
        show_eos: whether `str(context)` ends with the text of an end token, if one was drawn.
    """

    def __init__(
        self,
        lm: "CachedCausalLM",
        prompt: Any,
        temp: float = 1.0,
        show_prompt: bool = False,
        show_eos: bool = True,
        *,
        heal: bool = False,
    ) -> None:
        """Begin a generation.

        Args:
            lm: the language model.
            prompt: a text, token ids, or chat messages.
            temp: the logits are divided by it; 0 is the likeliest token (the first, on a tie) and no other.
            show_prompt: see above.
            show_eos: see above.
            heal: draw the prompt's last token again, among those whose bytes begin with its bytes. A text
                cut off where the tokenizer would not have cut it ("http:" before "//") otherwise leads the
                model astray. The first token is then drawn from the model's distribution, conditioned on
                beginning so, and counts as the first after the prompt; only what it adds is shown.

        Raises:
            ArgumentError: for an empty prompt where there is no start token; for a negative temperature;
                for a prompt to heal that has no token before its last, or ends with a special one.
            ContextLengthError: for a prompt longer than the model can read.
            VocabularyError: for ids that do not exist.
        """
        self.lm = lm
        self._temp = check_temperature(temp)
        self.show_prompt = show_prompt
        self.show_eos = show_eos
        prefix = lm.prompt_prefix(prompt)
        ids = prefix.token_ids()
        self.prompt_token_count = len(ids)
        self.prompt_string_length = len(decode(lm.vocabulary.join(ids)))
        self._redrawn = b""
        mask = None
        if heal:
            if prefix.parent is None or lm.vocabulary.special[prefix.token_id]:
                raise ArgumentError("there is no ordinary token at the end of the prompt to draw again")
            if prefix.parent.parent is None and not lm.backend.accepts_empty:
                raise ArgumentError("a prompt to heal needs a token before its last: put something before it")
            self._redrawn = lm.vocabulary.byte_vocab[prefix.token_id]
            mask = lm.masks.starting_with(self._redrawn)
            self.prompt_token_count -= 1
            prefix = prefix.parent
        bare = all(lm.vocabulary.special[i] for i in prefix.token_ids())
        self._state = _State(prefix, b"", bare, 0, mask)

    @classmethod
    async def create(
        cls,
        lm: "CachedCausalLM",
        prompt: Any,
        temp: float = 1.0,
        show_prompt: bool = False,
        show_eos: bool = True,
        *,
        heal: bool = False,
    ) -> "LMContext":
        """The same as the constructor, for scripts that await it."""
        return cls(lm, prompt, temp, show_prompt, show_eos, heal=heal)

    # --- what can happen next

    def next_token(self) -> LMNextToken:
        """The distribution of the next token. Sampling, observing or intervening adds the token."""
        return LMNextToken(self)

    def mask_dist(self, mask: Any) -> LMTokenMask:
        """The distribution of whether the next token is in `mask`, which the event then makes certain.

        Args:
            mask: a `TokenMask`, or any iterable of token ids.

        Raises:
            VocabularyError: for ids that do not exist, or the mask of another vocabulary.
        """
        return LMTokenMask(self, self.lm.token_mask(mask))

    # --- what it holds

    @property
    def tokens(self) -> list[int]:
        """The token ids so far, prompt included."""
        return self._state.prefix.token_ids()

    @property
    def token_count(self) -> int:
        """Number of tokens after the prompt."""
        return len(self._state.prefix) - self.prompt_token_count

    @property
    def s(self) -> TokenSequence:
        """The tokens so far, prompt included, as a sequence that knows its text."""
        return TokenSequence(self.lm, self.tokens)

    @property
    def temp(self) -> float:
        """The temperature."""
        return self._temp

    @temp.setter
    def temp(self, temp: float) -> None:
        state = self._state
        self._temp = check_temperature(temp)
        self._state = _State(state.prefix, state.text, state.bare, state.added, state.mask, state.row)

    @property
    def model_mask(self) -> TokenMask:
        """The tokens not ruled out as the next one."""
        return self._state.mask if self._state.mask is not None else self.lm.masks.ALL_TOKENS

    async def logprobs(self) -> NDArray[np.float64]:
        """Log-probabilities of the next token, (V,) nats, temperature and mask applied."""
        return self._logprobs(await self._row())

    @property
    def next_token_logprobs(self) -> NDArray[np.float64]:
        """`logprobs()`, blocking: inside a step, prefer the former, which shares a batch."""
        row = self._state.row
        if row is None:
            row = self._remember(self._state, self.lm.row_now(self._state.prefix))
        return self._logprobs(row)

    def partial_pieces(self) -> dict[int, bytes]:
        """What the next token would add to the text, by id, where that is not all of its bytes.

        So it is for the first token of a text whose first space is the tokenizer's own, and for one that
        stands in for the last token of a prompt (`heal`). Empty everywhere else.
        """
        hidden = self._hidden_beginning()
        if not hidden:
            return {}
        vocabulary = self.lm.vocabulary
        ids = self.lm.masks.starting_with(hidden)
        return {i: vocabulary.byte_vocab[i][len(hidden) :] for i in ids}

    def _hidden_beginning(self) -> bytes:
        """What the text does not show of the next token's bytes, should it begin with that."""
        state = self._state
        if self._redrawn and len(state.prefix) == self.prompt_token_count:
            return self._redrawn  # which the prompt shows already
        return b" " if state.bare and self.lm.vocabulary.strips_first_space else b""

    def __str__(self) -> str:
        state = self._state
        data = self.lm.vocabulary.join(state.prefix.token_ids()) if self.show_prompt else state.text
        if not self.show_eos and self.token_count and state.prefix.token_id in self.lm.eos_token_ids:
            data = data[: len(data) - state.added]
        return decode(data)

    def __bytes__(self) -> bytes:
        return self._state.text

    def __repr__(self) -> str:
        prompt, text = self._prompt_and_text()
        return f"<LMContext {visible(prompt, 40, end=True)} + {visible(text, 60, end=True)}>"

    def _repr_html_(self) -> str:
        state = self._state
        notes = [f"prompt of {self.prompt_token_count} tokens, {self.token_count} since"]
        notes += [f"temperature {self._temp:g}"] if self._temp != 1 else []
        notes += [f"next token one of {len(state.mask):,}"] if state.mask is not None else []
        bars = self._known_bars()
        page = prompt_and_text_html(*self._prompt_and_text()) + note(", ".join(notes))
        return page if bars is None else page + note("next token:") + bars_html(bars)

    def _prompt_and_text(self) -> tuple[str, str]:
        """All of the prompt's text, and what has been added to it."""
        state = self._state
        data = self.lm.vocabulary.join(state.prefix.token_ids())
        prompt = data[: len(data) - len(state.text)]
        if len(state.prefix) == self.prompt_token_count:
            prompt += self._redrawn
        return decode(prompt), decode(state.text)

    def _known_row(self) -> LogitsRow | None:
        """The row of the next token, if somebody has asked for it before."""
        return self._state.row or self.lm.known_row(self._state.prefix)

    def _known_bars(self) -> Bars | None:
        row = self._known_row()
        return None if row is None else token_bars(self.lm, self._logprobs(row))

    def __deepcopy__(self, memo: dict[int, Any]) -> "LMContext":
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        if len(self.__dict__) > len(_OWN):
            for name in self.__dict__.keys() - _OWN:
                new.__dict__[name] = copy.deepcopy(self.__dict__[name], memo)
        return new

    # --- for the two distributions

    async def _row(self) -> LogitsRow:
        state = self._state
        turn = current_turn()
        if state.row is not None and (turn is None or not turn.dead):
            return state.row
        return self._remember(state, await self.lm.row(state.prefix))

    def _remember(self, state: _State, row: LogitsRow) -> LogitsRow:
        """Keep the row while the context stands here: it weighs by the row it draws from."""
        turn = current_turn()
        if self._state is state and (turn is None or not turn.dead):
            self._state = _State(state.prefix, state.text, state.bare, state.added, state.mask, row)
        return row

    def _mass(self, row: LogitsRow) -> Mass:
        state = self._state
        if state.mass is not None and state.row is row:
            return state.mass
        return row.mass(self._temp, None if state.mask is None else state.mask.factors)

    def _logprobs(self, row: LogitsRow) -> NDArray[np.float64]:
        mask = self._state.mask
        return row.logprobs(self._temp, None if mask is None else mask.factors)

    def _append(self, token_id: int) -> None:
        state = self._state
        vocabulary = self.lm.vocabulary
        piece = vocabulary.byte_vocab[token_id]
        bare = state.bare and bool(vocabulary.special[token_id])
        hidden = b"" if bare else self._hidden_beginning()
        if hidden:
            piece = piece.removeprefix(hidden)
        self._state = _State(state.prefix.child(token_id), state.text + piece, bare, len(piece))

    def _narrow(self, mask: TokenMask, row: LogitsRow, mass: Mass) -> None:
        state = self._state
        turn = current_turn()
        if turn is not None and turn.dead:
            self._state = _State(state.prefix, state.text, state.bare, state.added, mask)
        else:
            self._state = _State(state.prefix, state.text, state.bare, state.added, mask, row, mass)
