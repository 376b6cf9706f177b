"""Checks of what users hand to distributions."""

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..display import Bars, likeliest, token_label
from ..errors import ArgumentError, VocabularyError
from ..tokens import Token

if TYPE_CHECKING:
    from ..llms import CachedCausalLM


def token_id_of(lm: "CachedCausalLM", value: Any) -> int:
    """The id of a token or an id.

    Raises:
        VocabularyError: for text, for an id that does not exist, for a token of another vocabulary.
    """
    if isinstance(value, Token):
        lm.vocabulary.check_same(value.lm.vocabulary, f"the token {value!r}")
        return value.token_id
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise VocabularyError(
            f"a token or a token id is needed, not {value!r}; "
            "for text, take the ids of `lm.tokenizer.encode(text, add_special_tokens=False)` one by one"
        )
    return lm.vocabulary.check_id(operator.index(value))


# At a temperature below this, what is not the largest logit has no probability that a float could hold.
_COLDEST = 1e-30


def check_temperature(temp: float) -> float:
    """A temperature as a float; one too small to divide by counts as 0.

    Raises:
        ArgumentError: if it is negative, infinite or NaN.
    """
    try:
        value = float(temp)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise ArgumentError(f"a temperature is a number from 0 (the likeliest token only) up, not {temp!r}")
    return value if value >= _COLDEST else 0.0


def token_outcomes(lm: "CachedCausalLM", logprobs: NDArray[np.floating]) -> list[tuple[Token, float]]:
    """The possible tokens of a row of log-probabilities, and these."""
    return [(Token(lm, i), float(logprobs[i])) for i in np.flatnonzero(logprobs > -np.inf).tolist()]


def token_bars(lm: "CachedCausalLM", logprobs: NDArray[np.floating]) -> Bars:
    """The likeliest tokens of a row of log-probabilities, to be shown."""
    return likeliest(np.exp(logprobs), lambda i: token_label(lm.byte_vocab[i]))
