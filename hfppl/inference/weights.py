"""Log-weights of a population."""

import math

import numpy as np
from numpy.typing import NDArray

from ..numerics import logsumexp

LogWeights = NDArray[np.float64]


def normalize(log_weights: LogWeights) -> NDArray[np.float64]:
    """Weights that sum to one.

    Args:
        log_weights: (N,) nats, unnormalised, finite or -inf.

    Returns:
        (N,); all 0 if every log-weight is -inf.
    """
    total = logsumexp(log_weights)
    if total == -math.inf:
        return np.zeros(len(log_weights))
    weights = np.exp(log_weights - total)
    return np.asarray(weights / weights.sum())


def effective_sample_size(log_weights: LogWeights) -> float:
    """(sum w)^2 / sum w^2 (Kong, Liu & Wong 1994), between 1 and N; 0 if every weight is zero."""
    weights = normalize(log_weights)
    squares = float(np.sum(weights**2))
    return 0.0 if squares == 0 else 1.0 / squares


def log_mean(log_weights: LogWeights) -> float:
    """Log of the mean weight, in nats: the estimate of log Z of a properly weighted population."""
    return logsumexp(log_weights) - math.log(len(log_weights))
