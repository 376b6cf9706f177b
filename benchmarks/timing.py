"""Sides that take turns, and ratios with their spread."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How much faster one side is than another, round by round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({min(self.rounds):.2f} to {max(self.rounds):.2f})"


def take_turns(sides: Mapping[str, Callable[[], float]], n_rounds: int) -> dict[str, list[float]]:
    """Seconds of each side in each round; every side has run once before the first round counts.

    A side returns the seconds it took itself, so that what it sets up need not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for current in range(n_rounds + 1):
        for name, side in sides.items():
            gc.collect()
            taken = side()
            if current:
                seconds[name].append(taken)
    return seconds


def ratio(seconds: Mapping[str, list[float]], of: str, over: str) -> Ratio:
    """How many times faster `of` is than `over`."""
    return Ratio(tuple(b / a for a, b in zip(seconds[of], seconds[over], strict=True)))


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
