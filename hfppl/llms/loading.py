"""How each kind of language model is put together. Heavy libraries are imported here, on first use."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..tokens import Vocabulary
from .backend import Backend
from .function import FunctionBackend, LongestMatchTokenizer
from .mock import MockBackend

BACKENDS = ("hf", "mock")

_MOCK_OPTIONS = {"token", "trust_remote_code"}


def load(
    model_id: str | os.PathLike[str] | None,
    backend: str,
    kv_options: Mapping[str, Any],
    options: dict[str, Any],
) -> tuple[Backend, Any, Any]:
    """The backend, the tokenizer and the transformers model (None for "mock") of a named model."""
    from . import hf_loading

    if model_id is None:
        from .default_model import default_model_path

        model_id = default_model_path()
    if backend == "mock":
        unknown = set(options) - _MOCK_OPTIONS
        if unknown:
            raise ArgumentError(f"the mock backend takes no {', '.join(sorted(unknown))}")
        tokenizer = hf_loading.load_tokenizer(str(model_id), **options)
        from ..tokens.token_bytes import read_vocabulary

        return MockBackend(read_vocabulary(tokenizer).size), tokenizer, None
    model, tokenizer = hf_loading.load_pretrained(str(model_id), **options)
    return hf_backend(model, **kv_options), tokenizer, model


def hf_backend(model: Any, **kv_options: Any) -> Backend:
    """The transformers backend of a loaded model."""
    from .hf import HFBackend

    return HFBackend(model, **kv_options)


def read_tokenizer(tokenizer: Any, backend: Backend, model: Any) -> tuple[Vocabulary, frozenset[int]]:
    """The vocabulary of a tokenizer, and the ids that end a text."""
    from ..tokens.token_bytes import find_eos_token_ids, read_vocabulary

    vocabulary = read_vocabulary(tokenizer, backend.n_logits)
    return vocabulary, find_eos_token_ids(tokenizer, getattr(model, "generation_config", None), vocabulary)


def from_function(
    vocab: Sequence[str | bytes],
    next_logits: Callable[[list[int]], ArrayLike],
    eos_token_ids: Iterable[int],
) -> tuple[FunctionBackend, LongestMatchTokenizer, Vocabulary]:
    """Backend, tokenizer and vocabulary of a language model given by a function."""
    if isinstance(vocab, str | bytes) or not vocab:
        raise ArgumentError("vocab must be a list of at least one token, each a str or bytes")
    entries = [entry.encode() if isinstance(entry, str) else bytes(entry) for entry in vocab]
    ends = sorted(set(eos_token_ids))
    vocabulary = Vocabulary(entries, special_ids=ends)
    for token_id in ends:
        vocabulary.check_id(token_id)
    return FunctionBackend(next_logits, len(entries)), LongestMatchTokenizer(entries, ends), vocabulary
