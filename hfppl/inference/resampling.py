"""Which particles go on, and how often: unbiased ways to turn weights into whole numbers of offspring.

Each scheme takes weights `(N,)` that sum to one and returns `(n,)` ancestors, ascending, so that the
expected number of offspring of particle i is n times its weight. A particle of weight zero never has
any, and no uniform in [0, 1) leads past the last particle, however the weights round.

Douc, Cappé & Moulines (2005) compare the first four.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from ..random import rng as current_rng

__all__ = [
    "RESAMPLING_METHODS",
    "get_resampling_fn",
    "multinomial_resample",
    "optimal_resample",
    "residual_resample",
    "ssp_resample",
    "stratified_resample",
    "systematic_resample",
]

Ancestors = NDArray[np.int64]
ResamplingFn = Callable[..., Ancestors]


def multinomial_resample(
    weights: ArrayLike, rng: np.random.Generator | None = None, n: int | None = None
) -> Ancestors:
    """Independent draws: n uniforms."""
    weights, rng, n = _arguments(weights, rng, n)
    return _invert(weights, np.sort(rng.random(n)))


def stratified_resample(
    weights: ArrayLike, rng: np.random.Generator | None = None, n: int | None = None
) -> Ancestors:
    """One uniform in each of n equal strata."""
    weights, rng, n = _arguments(weights, rng, n)
    return _invert(weights, (np.arange(n) + rng.random(n)) / n)


def systematic_resample(
    weights: ArrayLike, rng: np.random.Generator | None = None, n: int | None = None
) -> Ancestors:
    """One uniform, repeated at steps of 1/n: offspring differ from n w by less than one."""
    weights, rng, n = _arguments(weights, rng, n)
    return _invert(weights, (np.arange(n) + rng.random()) / n)


def residual_resample(
    weights: ArrayLike, rng: np.random.Generator | None = None, n: int | None = None
) -> Ancestors:
    """The whole part of n w for certain, the fractions by independent draws (Liu & Chen 1998)."""
    weights, rng, n = _arguments(weights, rng, n)
    expected = n * weights
    # A whole number that rounding has put just below itself counts as whole.
    certain = np.floor(expected * (1 + 4 * np.finfo(float).eps)).astype(np.int64)
    rest = n - int(certain.sum())
    ancestors = np.repeat(np.arange(len(weights)), certain)
    if rest <= 0:
        return ancestors
    fractions = np.maximum(expected - certain, 0.0)
    extra = _invert(fractions / fractions.sum(), np.sort(rng.random(rest)))
    return np.sort(np.concatenate([ancestors, extra]))


def ssp_resample(
    weights: ArrayLike, rng: np.random.Generator | None = None, n: int | None = None
) -> Ancestors:
    """The Srinivasan sampling process (Gerber, Chopin & Whiteley 2019): offspring differ from n w by
    less than one, and are negatively associated, so that more particles never hurt.

    The fractions of n w are rounded two at a time: one gains what the other loses, up to where one of
    them is whole, in a random direction that keeps both expectations.
    """
    weights, rng, n = _arguments(weights, rng, n)
    expected = n * weights
    counts = np.floor(expected * (1 + 4 * np.finfo(float).eps)).astype(np.int64)
    fractions = np.clip(expected - counts, 0.0, None)
    open_ones = np.flatnonzero(fractions > 0)
    if len(open_ones):
        uniforms = rng.random(len(open_ones) - 1)
        here = int(open_ones[0])
        for there, uniform in zip(open_ones[1:].tolist(), uniforms, strict=True):
            up = min(1 - fractions[here], fractions[there])  # what `here` can gain from `there`
            down = min(fractions[here], 1 - fractions[there])  # and lose to it
            change = up if uniform * (up + down) < down else -down
            fractions[here] += change
            fractions[there] -= change
            if not 0 < fractions[here] < 1:
                here, whole = there, here
            else:
                whole = there
            counts[whole] += round(fractions[whole])
        # All places but those already given belong to the last; rounding makes its fraction 0 or 1.
        counts[here] += n - int(counts.sum())
    return np.repeat(np.arange(len(weights)), counts)


def optimal_resample(
    weights: ArrayLike, n: int, rng: np.random.Generator | None = None
) -> tuple[Ancestors, NDArray[np.float64]]:
    """At most n particles without repetition, with new weights of the right expectation.

    The threshold c solves sum min(w / c, 1) = n. Particles heavier than c keep their weight; of the
    others, each survives with probability w / c and then weighs c (Fearnhead & Clifford 2003).

    Args:
        weights: (K,) that sum to one.
        n: how many to keep. If no more than n weights are positive, all of these are kept.
        rng: one uniform is drawn from it, if any choice is left.

    Returns:
        The ancestors, ascending, and their new weights, in the unit of the old ones.
    """
    weights, rng, _ = _arguments(weights, rng, n)
    positive = np.flatnonzero(weights)
    if len(positive) <= n:
        return positive, weights[positive]
    order = positive[np.argsort(weights[positive], kind="stable")]
    n_light, threshold = _threshold(weights[order], n)
    light, heavy = order[:n_light], order[n_light:]
    n_chosen = n - len(heavy)
    share = weights[light] / weights[light].sum()
    chosen = light[_invert(share, (np.arange(n_chosen) + rng.random()) / n_chosen)]
    # Each share is at most 1 / n_chosen, so only rounding could choose a particle twice.
    keep = np.union1d(heavy, chosen)
    return keep, np.where(np.isin(keep, heavy), weights[keep], threshold)


def _threshold(ascending: NDArray[np.float64], n: int) -> tuple[int, float]:
    """How many weights are light, and the c for which sum min(w / c, 1) = n, for more than n weights > 0.

    With k light weights, c is their sum over the places that the heavy ones leave. It is consistent
    for the first k at which c does not exceed the lightest heavy weight.
    """
    n_light = np.arange(len(ascending) - n + 1, len(ascending) + 1)
    c = ascending.cumsum()[n_light - 1] / (n - len(ascending) + n_light)
    lightest_heavy = np.append(ascending, np.inf)[n_light]
    k = int(np.argmax(c <= lightest_heavy))
    return int(n_light[k]), float(c[k])


def _invert(weights: NDArray[np.float64], uniforms: NDArray[np.float64]) -> Ancestors:
    """For each uniform, the first particle at which the running weight exceeds it."""
    running = weights.cumsum()
    found = running.searchsorted(uniforms * running[-1], side="right")
    last = int(running.searchsorted(running[-1], side="left"))
    ancestors: Ancestors = np.minimum(found, last).astype(np.int64)
    return ancestors


def _arguments(
    weights: ArrayLike, rng: np.random.Generator | None, n: int | None
) -> tuple[NDArray[np.float64], np.random.Generator, int]:
    values = np.asarray(weights, dtype=np.float64)
    total = float(values.sum())
    if values.ndim != 1 or not (values >= 0).all() or not abs(total - 1) < 1e-3:
        raise ArgumentError("weights to resample by are a vector of numbers >= 0 that sum to one")
    return values / total, current_rng() if rng is None else rng, len(values) if n is None else n


RESAMPLING_METHODS: dict[str, ResamplingFn] = {
    "multinomial": multinomial_resample,
    "stratified": stratified_resample,
    "systematic": systematic_resample,
    "residual": residual_resample,
    "ssp": ssp_resample,
}


def get_resampling_fn(method: str) -> ResamplingFn:
    """The scheme of a name.

    Raises:
        ArgumentError: if there is none.
    """
    if not isinstance(method, str) or method not in RESAMPLING_METHODS:
        raise ArgumentError(
            f"no resampling method {method!r}; choose one of {', '.join(sorted(RESAMPLING_METHODS))}"
        )
    return RESAMPLING_METHODS[method]
