"""The sampling loop of the textbooks, as plain numpy functions: logits, temperature, one token, repeat.

Nothing here knows of particles. It is what `LMContext` does at each step, written out, and what proposals
are made of. All is float64; randomness is an argument.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, NumericalError

__all__ = ["generate", "min_p", "sample_token", "softmax_with_temperature", "top_k", "top_p"]

Logits = NDArray[np.float64]


def softmax_with_temperature(logits: ArrayLike, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probabilities proportional to exp(logit / temperature).

    Args:
        logits: (V,) nats, unnormalised; -inf for what is impossible.
        temperature: below 1 sharpens, above 1 flattens; 0 puts everything on the largest logit, the
            first of several.

    Returns:
        (V,) that sum to one: `[2, 1, 0]` gives `[0.665, 0.245, 0.090]` at 1, `[0.867, 0.117, 0.016]`
        at 0.5.

    Raises:
        ArgumentError: for a temperature that is negative, infinite or NaN, or logits that are no vector.
        NumericalError: for logits that are NaN or +inf, or all -inf.
    """
    if not 0 <= temperature < math.inf:
        raise ArgumentError(f"a temperature is a number from 0 up, not {temperature}")
    values = _vector(logits)
    peak = values.max()
    if temperature == 0:
        probs = np.zeros(len(values))
        probs[values.argmax()] = 1.0
        return probs
    # Subtracting the peak first keeps the exponentials in range, however small the temperature.
    with np.errstate(over="ignore"):
        weights = np.exp((values - peak) / temperature)
    return np.asarray(weights / weights.sum())


def sample_token(probs: ArrayLike, rng: np.random.Generator) -> int:
    """Draw an index by inverting the distribution function: exactly one `rng.random()`.

    Args:
        probs: (V,) that sum to one.
        rng: where the uniform u comes from.

    Returns:
        The first index whose running total is strictly greater than u. Never one of probability zero,
        and never past the end, where the total rounds to less than one.

    Raises:
        ArgumentError: unless the probabilities are at least 0 and sum to one within 1e-3.
    """
    values = np.asarray(probs, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ArgumentError(
            f"probabilities form a vector of at least one number, not an array of shape {values.shape}"
        )
    running = values.cumsum()
    if not (values >= 0).all() or not abs(running[-1] - 1) <= 1e-3:
        raise ArgumentError(
            f"probabilities are at least 0 and sum to one; the smallest of these is {values.min():.6g}, "
            f"and they sum to {values.sum():.6g}: normalise them first"
        )
    index = int(running.searchsorted(rng.random(), side="right"))
    if index < len(running):
        return index
    return int(running.searchsorted(running[-1], side="left"))  # the last one that is possible


def generate(
    next_logits: Callable[[list[int]], ArrayLike],
    prompt: Sequence[int],
    n_new: int,
    temperature: float,
    rng: np.random.Generator,
) -> list[int]:
    """Continue a prompt token by token.

    Args:
        next_logits: from the ids so far to (V,) logits of the next one.
        prompt: token ids; not changed.
        n_new: how many tokens to add.
        temperature: as in `softmax_with_temperature`.
        rng: one uniform is taken from it for each new token.

    Returns:
        The prompt and the new tokens.

    Raises:
        ArgumentError: for a negative `n_new`; else as the two functions above.
    """
    if n_new < 0:
        raise ArgumentError(f"n_new is a number of tokens from 0 up, not {n_new}")
    ids = list(prompt)
    for _ in range(n_new):
        probs = softmax_with_temperature(next_logits(list(ids)), temperature)
        ids.append(sample_token(probs, rng))
    return ids


def top_k(logits: ArrayLike, k: int) -> Logits:
    """Logits with all but the k largest at -inf; of equals, the earlier stay.

    Raises:
        ArgumentError: for k below 1.
    """
    if k < 1:
        raise ArgumentError(f"top_k keeps at least one token, not {k}")
    values = _vector(logits)
    keep = np.argsort(-values, kind="stable")[:k]
    return _only(values, keep)


def top_p(logits: ArrayLike, p: float) -> Logits:
    """Logits with all but the smallest set of mass at least p at -inf (Holtzman et al. 2020).

    Raises:
        ArgumentError: unless 0 < p <= 1.
    """
    if not 0 < p <= 1:
        raise ArgumentError(f"top_p keeps a mass between 0 and 1, not {p}")
    values = _vector(logits)
    if p == 1:
        return values.copy()
    order = np.argsort(-values, kind="stable")
    running = softmax_with_temperature(values)[order].cumsum()
    n_kept = int(running.searchsorted(p * (1 - 1e-12), side="left")) + 1
    return _only(values, order[:n_kept])


def min_p(logits: ArrayLike, p: float) -> Logits:
    """Logits with all tokens less likely than p times the likeliest at -inf.

    Raises:
        ArgumentError: unless 0 <= p <= 1.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"min_p is a share of the largest probability, between 0 and 1, not {p}")
    values = _vector(logits)
    floor = values.max() + (math.log(p) if p > 0 else -math.inf)
    return np.where(values >= floor, values, -np.inf)


def _vector(logits: ArrayLike) -> Logits:
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ArgumentError(
            f"logits form a vector of at least one number, not an array of shape {values.shape}"
        )
    peak = values.max()
    if np.isnan(peak) or np.isinf(peak):
        raise NumericalError(
            "logits are numbers or -inf, and at least one is a number; the largest of these is " + str(peak)
        )
    return values


def _only(values: Logits, keep: NDArray[np.intp]) -> Logits:
    result = np.full(len(values), -np.inf)
    result[keep] = values[keep]
    return result
