"""Who descends from whom, and what that says about the variance of the estimate of Z."""

import math

import numpy as np
from numpy.typing import NDArray

from .weights import LogWeights, normalize


class Genealogy:
    """The first ancestors of a population, followed through its resamplings.

    Attributes:
        eves: (N,) the particle of the first step from which each descends.
        n_resamplings: how often the population has been resampled.
    """

    def __init__(self, n_particles: int, resampling_method: str | None) -> None:
        """Args: the method is None for a population that is never resampled."""
        self._method = resampling_method
        self.eves: NDArray[np.int64] = np.arange(n_particles)
        self.n_resamplings = 0

    def resample(self, ancestors: NDArray[np.int64]) -> None:
        """Follow one resampling."""
        self.eves = self.eves[ancestors]
        self.n_resamplings += 1

    def standard_error(self, log_weights: LogWeights) -> float | None:
        """Estimated standard error of the estimate of log Z, from this one run.

        The relative variance of the estimate of Z is estimated from the weights of families, those who
        share a first ancestor (Chan & Lai 2013; Lee & Whiteley 2018, equation 5, whose estimator is
        unbiased for the unnormalised variance), and carried over to the logarithm.

        Args:
            log_weights: (N,) nats, at the end.

        Returns:
            Nats. None where the theory says nothing: after resampling by another scheme than the
            multinomial, when all descend from one, when one particle or none is left, or when the
            estimate, which can be negative, is.
        """
        n = len(log_weights)
        weights = normalize(log_weights)
        if n < 2 or np.count_nonzero(weights) < 1:
            return None
        families = np.bincount(self.eves, weights, minlength=n)
        if self.n_resamplings and (self._method != "multinomial" or np.count_nonzero(families) < 2):
            return None
        apart = 1 - float(np.sum(families**2))  # probability that two drawn by weight are unrelated
        variance = 1 - (n / (n - 1)) ** (self.n_resamplings + 1) * apart
        if abs(variance) < 1e-12:
            return 0.0
        return math.sqrt(variance) if variance > 0 else None
