"""Arithmetic in log space, in float64. `-inf` is a value, the log of zero; NaN and +inf are errors."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import NumericalError

__all__ = ["check_log_factor", "log_softmax", "logsumexp", "softmax"]


def logsumexp(nums: ArrayLike) -> float:
    """Log of the sum of exponentials.

    Args:
        nums: any shape, nats; -inf marks a zero.

    Returns:
        -inf for nothing and for nothing but -inf; +inf and NaN pass through.
    """
    values = np.asarray(nums, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.logaddexp.reduce(values, axis=None))


def log_softmax(nums: ArrayLike) -> NDArray[np.float64]:
    """Normalise unnormalised log-probabilities.

    Args:
        nums: (K,) nats; -inf marks an impossible outcome.

    Returns:
        (K,) nats, float64; all -inf if every outcome is impossible.

    Raises:
        NumericalError: if an entry is NaN or +inf.
    """
    values = np.asarray(nums, dtype=np.float64)
    total = logsumexp(values)
    if math.isnan(total) or total == math.inf:
        raise NumericalError("log_softmax needs numbers or -inf, but got a NaN or +inf among them")
    return values if total == -math.inf else values - total


def softmax(nums: ArrayLike) -> NDArray[np.float64]:
    """Probabilities of unnormalised log-probabilities: (K,), summing to one, or all 0 if all are -inf."""
    return np.exp(log_softmax(nums))


def check_log_factor(value: Any, call: Callable[[], str]) -> float:
    """A log-factor as a float.

    Args:
        value: a number: Python's, numpy's, or a tensor of one element. In nats.
        call: begins the message, up to the number; asked only if there is one.

    Raises:
        NumericalError: if it is NaN or +inf.
    """
    number = float(value)
    if not number < math.inf:  # which NaN is not either
        raise NumericalError(
            f"{call()} {number}; a log-factor is a number of nats, or -inf for what is impossible"
        )
    return number


def as_float64(values: Sequence[float]) -> NDArray[np.float64]:
    """A read-only float64 array."""
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    return array
