"""The exact target of guided generation, by going through every sequence of tokens there is.

Uses nothing of hfppl but the vocabulary: it multiplies entries of a table.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np

from hfppl import CachedCausalLM

EOS, STOP = 7, 8
VOCAB = [b"a", b"b", b"ab", b"\xf0\x9f", b"\x98\x80", b"\xf0\x9f\x98\x80b", b"a", b"<eos>", b"<stop>"]
ENDS = {EOS, STOP}
V = len(VOCAB)
Accepts = Callable[[str], bool]


@functools.cache
def probs(name: int, ids: tuple[int, ...], temp: float = 1.0) -> np.ndarray:
    """The next-token distribution after `ids`: different after every prefix, one token impossible."""
    p = np.random.default_rng([name, *ids]).dirichlet(np.full(V, 1.5))
    p[(name + sum(ids) + len(ids)) % (V - 2)] = 0
    p = p ** (1 / temp)
    return p / p.sum()


def language_model(name: int = 1) -> CachedCausalLM:
    """The table as a language model with two end tokens."""

    def next_logits(ids: list[int]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(probs(name, tuple(ids)))

    return CachedCausalLM.from_function(VOCAB, next_logits, sorted(ENDS))


def text_of(ids: tuple[int, ...]) -> str | None:
    """The text of tokens; None if it is not UTF-8."""
    try:
        return b"".join(VOCAB[i] for i in ids).decode()
    except UnicodeDecodeError:
        return None


def to_end_token(accepts: Accepts, max_tokens: int, name: int = 1, temp: float = 1.0) -> dict[str, float]:
    """Unnormalised posterior over texts: tokens, then an end token, `max_tokens` in all at most."""
    exact: dict[str, float] = {}
    for n in range(max_tokens):
        for ids in itertools.product(range(V - 2), repeat=n):
            text = text_of(ids)
            if text is not None and accepts(text):
                p = np.prod([probs(name, ids[:i], temp)[ids[i]] for i in range(n)])
                p *= sum(probs(name, ids, temp)[end] for end in ENDS)
                if p > 0:
                    exact[text] = exact.get(text, 0.0) + float(p)
    return exact


def to_boundary(accepts: Accepts, begins: Accepts, max_tokens: int, name: int = 1) -> dict[str, float]:
    """The same where a text ends before the first token that would not go on with it.

    Args:
        accepts: whether a text is complete.
        begins: whether bytes, read with surrogateescape, begin a valid text.
        max_tokens: the most tokens of text.
    """

    def goes_on(ids: tuple[int, ...]) -> bool:
        return begins(b"".join(VOCAB[i] for i in ids).decode(errors="surrogateescape"))

    exact: dict[str, float] = {}
    for n in range(max_tokens + 1):
        for ids in itertools.product(range(V - 2), repeat=n):
            text = text_of(ids)
            if text is None or not accepts(text):
                continue
            if not all(goes_on(ids[: i + 1]) for i in range(n)):
                continue
            p = np.prod([probs(name, ids[:i])[ids[i]] for i in range(n)])
            p *= 1 - sum(probs(name, ids)[i] for i in range(V - 2) if goes_on((*ids, i)))
            if p > 0:
                exact[text] = exact.get(text, 0.0) + float(p)
    return exact
