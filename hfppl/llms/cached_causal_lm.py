"""The language model as users see it: one vocabulary, one backend, shared by all particles."""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..copying import share_parts
from ..errors import ArgumentError, HfpplError
from ..logits import LogitsRow
from ..tokens import Masks, Token, TokenMask, Vocabulary
from . import loading
from .backend import Backend
from .prefix import Prefix
from .prompt import prompt_ids, token_ids
from .row_source import LMStats, RowSource


class CachedCausalLM:
    """A causal language model that answers many particles at once and computes nothing twice.

    Make one with `from_pretrained`, `from_model` or `from_function`. It is shared, never copied:
    deep-copying it returns it. Any number of runs, event loops and threads may use it together.

    Attributes:
        tokenizer: the tokenizer it came with.
        vocabulary: bytes of every token, and which ids exist. V is its size everywhere.
        masks: the ready-made sets of tokens.
        backend: what evaluates it.
    """

    def __init__(self, hf_model: Any, hf_tokenizer: Any, batch_size: int | None = None) -> None:
        """The historical constructor; `from_model` says the same and takes more options."""
        backend = loading.hf_backend(hf_model)
        vocabulary, eos = loading.read_tokenizer(hf_tokenizer, backend, hf_model)
        self._set_up(backend, hf_tokenizer, vocabulary, eos, batch_size, None)

    @classmethod
    def from_pretrained(
        cls,
        model_id: str | os.PathLike[str] | None = None,
        backend: str | None = None,
        *,
        auth_token: str | None = None,
        load_in_8bit: bool = False,
        batch_size: int | None = None,
        row_cache_bytes: int | None = None,
        kv_cache_bytes: int | None = None,
        fast_linear: bool | None = None,
        timeout: float | None = None,
        hf_opts: Mapping[str, Any] | None = None,
        bitsandbytes_opts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "CachedCausalLM":
        """Load a language model and its tokenizer.

        Args:
            model_id: a hub id, a local folder, or None for the default model, SmolLM2-135M-Instruct.
            backend: "hf" (transformers, the default) or "mock" (the tokenizer alone, with free
                pseudo-random logits).
            auth_token: for gated models.
            load_in_8bit: quantise with bitsandbytes.
            batch_size: the most sequences to evaluate together; by default all that wait.
            row_cache_bytes: limit for the logits kept; by default a 256th of the memory, 1 GiB at most.
            kv_cache_bytes: limit for the keys and values kept.
            fast_linear: False keeps PyTorch's own matrix products on a CPU (see the performance notes).
            timeout: accepted for older scripts; nothing waits for a clock.
            hf_opts: further options for transformers, as a dict; so is `bitsandbytes_opts`, for its
                quantisation.
            options: `dtype`, `device`, `device_map`, `trust_remote_code` (off unless asked for), and
                whatever else transformers' `from_pretrained` takes.

        Raises:
            ModelUnavailableError: if it can't be had; the message says what to do.
        """
        if backend not in (None, *loading.BACKENDS):
            # Not shown: scripts of older versions pass an access token in this place.
            raise ArgumentError(
                f"there is no such backend; choose one of {', '.join(loading.BACKENDS)}. "
                "An access token goes into auth_token="
            )
        options = {**(hf_opts or {}), **options}
        if bitsandbytes_opts:
            options["bitsandbytes_opts"] = dict(bitsandbytes_opts)
        if auth_token is not None:
            options["token"] = auth_token
        if load_in_8bit:
            options["load_in_8bit"] = True
        kv_options = {"kv_cache_bytes": kv_cache_bytes, "fast_linear": fast_linear}
        made, tokenizer, model = loading.load(model_id, backend or "hf", kv_options, options)
        vocabulary, eos = loading.read_tokenizer(tokenizer, made, model)
        return cls._make(made, tokenizer, vocabulary, eos, batch_size, row_cache_bytes)

    @classmethod
    def from_model(
        cls,
        hf_model: Any,
        hf_tokenizer: Any,
        *,
        batch_size: int | None = None,
        row_cache_bytes: int | None = None,
        kv_cache_bytes: int | None = None,
        fast_linear: bool | None = None,
    ) -> "CachedCausalLM":
        """Wrap a transformers model that is already loaded, wherever its weights lie."""
        backend = loading.hf_backend(hf_model, kv_cache_bytes=kv_cache_bytes, fast_linear=fast_linear)
        vocabulary, eos = loading.read_tokenizer(hf_tokenizer, backend, hf_model)
        return cls._make(backend, hf_tokenizer, vocabulary, eos, batch_size, row_cache_bytes)

    @classmethod
    def from_function(
        cls,
        vocab: Sequence[str | bytes],
        next_logits: Callable[[list[int]], ArrayLike],
        eos_token_ids: Iterable[int] = (),
        *,
        batch_size: int | None = None,
        row_cache_bytes: int | None = None,
    ) -> "CachedCausalLM":
        """A language model given by a Python function, for tests and teaching; all in float64.

        Args:
            vocab: V tokens; a text prompt is split into the longest that match.
            next_logits: from the ids so far (none for an empty prompt) to V logits, -inf for impossible.
            eos_token_ids: the ids that end a text; they match no part of a prompt.
        """
        backend, tokenizer, vocabulary = loading.from_function(vocab, next_logits, eos_token_ids)
        return cls._make(
            backend, tokenizer, vocabulary, tokenizer.all_special_ids, batch_size, row_cache_bytes
        )

    @classmethod
    def _make(cls, *parts: Any) -> "CachedCausalLM":
        lm = cls.__new__(cls)
        lm._set_up(*parts)
        return lm

    def _set_up(
        self,
        backend: Backend,
        tokenizer: Any,
        vocabulary: Vocabulary,
        eos_token_ids: Iterable[int],
        batch_size: int | None,
        row_cache_bytes: int | None,
    ) -> None:
        self.backend = backend
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self._rows = RowSource(backend, vocabulary, row_cache_bytes)
        self.eos_token_ids = frozenset(eos_token_ids)
        self.batch_size = batch_size
        self.masks = Masks(vocabulary, lambda: self._rows.eos_token_ids)
        share_parts(self, self.tokenizer, self.model, self.vocabulary.byte_vocab)

    # --- what it is

    @property
    def model(self) -> Any:
        """What computes the logits: the transformers module, or the function."""
        return self.backend.model

    @functools.cached_property
    def str_vocab(self) -> list[str]:
        """V texts, one for each id."""
        share_parts(self, self.vocabulary.str_vocab)
        return self.vocabulary.str_vocab

    @property
    def vocab(self) -> list[str]:
        """The historical name of `str_vocab`."""
        return self.str_vocab

    @property
    def byte_vocab(self) -> list[bytes]:
        """V byte strings, one for each id."""
        return self.vocabulary.byte_vocab

    @property
    def vocab_size(self) -> int:
        """V: the tokenizer's highest id plus one, the length of every row and mask."""
        return self.vocabulary.size

    @property
    def max_context(self) -> int | None:
        """The longest sequence it can read, in tokens; None if there is no limit."""
        return self.backend.max_context

    @property
    def device(self) -> str:
        """Where it computes."""
        return self.backend.device

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The ids that end a text. May be set."""
        return self._rows.eos_token_ids

    @eos_token_ids.setter
    def eos_token_ids(self, ids: Iterable[int]) -> None:
        if not isinstance(ids, Iterable):
            raise ArgumentError(f"eos_token_ids is a set of token ids, not {ids!r}")
        self._rows.eos_token_ids = frozenset(token_ids(self, ids))

    @property
    def batch_size(self) -> int | None:
        """The most sequences evaluated together; None for all that wait. May be set."""
        return self._rows.batch_size

    @batch_size.setter
    def batch_size(self, size: int | None) -> None:
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ArgumentError(f"batch_size must be a positive int or None, got {size!r}")
        self._rows.batch_size = size

    def token_mask(self, ids: Iterable[int | Token]) -> TokenMask:
        """A set of token ids as a mask, to be made once and shared.

        Raises:
            VocabularyError: if an id is not in 0 ... V-1.
        """
        return TokenMask.from_ids(self.vocabulary, ids)

    # --- questions

    async def next_token_logprobs(
        self, token_ids: Iterable[int | Token], constraint: Any = None, prefix: str | bytes = ""
    ) -> NDArray[np.floating]:
        """Log-probabilities of the next token, (V,) nats, -inf where an id has no token.

        Concurrent calls are answered in one batch.

        Args:
            token_ids: ids or tokens, not text.
            constraint: see `next_token_logits`; the rest is then normalised.
            prefix: see `next_token_logits`.
        """
        allowed = self._allowed(constraint, prefix)
        return _logprobs(await self.row(self.prefix(token_ids)), allowed)

    def next_token_logprobs_unbatched(
        self, token_ids: Iterable[int | Token], constraint: Any = None, prefix: str | bytes = ""
    ) -> NDArray[np.floating]:
        """`next_token_logprobs`, blocking."""
        allowed = self._allowed(constraint, prefix)
        return _logprobs(self.row_now(self.prefix(token_ids)), allowed)

    async def next_token_logits(
        self, prompt: Any, constraint: Any = None, prefix: str | bytes = ""
    ) -> NDArray[np.floating]:
        """Raw logits of the next token, (V,), -inf where an id has no token. Nothing is sampled.

        Args:
            prompt: a text, token ids, or chat messages.
            constraint: from `hfppl.constraints`; what it does not allow next is at -inf, the rest is as
                it was. End tokens are allowed where the text may end.
            prefix: the end of the prompt that belongs to the constrained text already; by default that
                begins with the next token.

        Raises:
            ArgumentError: for a prefix that the constraint does not allow.
        """
        allowed = self._allowed(constraint, prefix)
        return _logits(await self.row(self.prompt_prefix(prompt)), allowed)

    def next_token_logits_unbatched(
        self, prompt: Any, constraint: Any = None, prefix: str | bytes = ""
    ) -> NDArray[np.floating]:
        """`next_token_logits`, blocking."""
        allowed = self._allowed(constraint, prefix)
        return _logits(self.row_now(self.prompt_prefix(prompt)), allowed)

    def _allowed(self, constraint: Any, prefix: str | bytes) -> TokenMask | None:
        if constraint is None:
            if prefix:
                raise ArgumentError("a prefix is the part of the prompt that a constraint is about: pass one")
            return None
        if not hasattr(constraint, "start"):
            raise ArgumentError(f"a constraint is made with hfppl.constraints, not {constraint!r}")
        if not isinstance(prefix, str | bytes):
            raise ArgumentError(f"a prefix is a text or bytes, not {prefix!r}")
        state = constraint.start(self)
        # A lone surrogate has no UTF-8, and then no constraint allows what stands for it.
        if not state.advance_bytes(
            prefix.encode("utf-8", "surrogatepass") if isinstance(prefix, str) else prefix
        ):
            raise ArgumentError(f"the constraint does not allow a text that begins with {prefix!r}")
        mask: TokenMask = state.mask()
        return mask

    def prefix(self, token_ids_: Iterable[int | Token]) -> Prefix:
        """The shared node of a sequence of ids.

        Raises:
            ArgumentError: for no ids at all, where the model needs one to begin with.
            VocabularyError: for ids that do not exist.
        """
        ids = token_ids(self, token_ids_)
        if not ids and not self.backend.accepts_empty:
            raise ArgumentError("no token ids: this language model needs at least one to begin with")
        return self._rows.root.descend(ids)

    def prompt_prefix(self, prompt: Any) -> Prefix:
        """The shared node of a prompt: a text, token ids, or chat messages. Errors as in `LMContext`."""
        return self._rows.root.descend(prompt_ids(self, prompt))

    async def row(self, prefix: Prefix) -> LogitsRow:
        """The logits of what follows a sequence: from memory, or with the next batch.

        Raises:
            ContextLengthError: if the sequence is longer than the model can read.
            NumericalError: if the model answers with a NaN or +inf.
        """
        return await self._rows.row(prefix)

    def row_now(self, prefix: Prefix) -> LogitsRow:
        """`row`, blocking."""
        return self._rows.row_now(prefix)

    def known_row(self, prefix: Prefix) -> LogitsRow | None:
        """The logits of what follows a sequence, if they are in memory. Asks the model nothing."""
        return self._rows.peek(prefix)

    # --- memory

    def cache_kv(self, token_ids: Iterable[int | Token]) -> None:
        """Evaluate a prompt now, and keep what makes its continuations cheap until the cache is cleared."""
        self._rows.keep(self.prefix(token_ids))

    def clear_cache(self) -> None:
        """Forget all logits, keys and values: after a change of the weights, for instance."""
        self._rows.clear(rows=True)

    def clear_kv_cache(self) -> None:
        """Forget the keys and values only."""
        self._rows.clear(rows=False)

    def reset_async_queries(self) -> None:
        """Fail whatever is waiting for a batch with a QueriesResetError."""
        self._rows.reset()

    def stats(self) -> LMStats:
        """Counts of what was asked, computed and reused, and bytes held."""
        return self._rows.stats()

    def __deepcopy__(self, memo: dict[int, Any]) -> "CachedCausalLM":
        return self

    def __copy__(self) -> "CachedCausalLM":
        return self

    def __reduce__(self) -> Any:
        raise HfpplError("a language model is not pickled: make it anew where it is needed")

    def __repr__(self) -> str:
        return f"<CachedCausalLM on {self.device}, {self.vocab_size} tokens>"


def _logprobs(row: LogitsRow, allowed: TokenMask | None) -> NDArray[np.floating]:
    return row.logprobs(mask=None if allowed is None else allowed.factors).astype(row.logits.dtype)


def _logits(row: LogitsRow, allowed: TokenMask | None) -> NDArray[np.floating]:
    return row.logits.copy() if allowed is None else np.where(allowed.allowed, row.logits, -np.inf)
