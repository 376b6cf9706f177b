"""Language models given by tables, and ways to count what they are asked and to hold them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hfppl import CachedCausalLM

# From the ids so far to the probabilities of the next.
Law = Callable[[tuple[int, ...]], Sequence[float]]

ABC = ("a", "b", "c", ".")  # the last of which ends a text


def table_lm(law: Law, vocab: Sequence[str | bytes] = ABC, eos: Iterable[int] = (3,), **options: Any) -> Any:
    """A language model with the probabilities that `law` tells."""

    def next_logits(ids: list[int]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(law(tuple(ids)), dtype=np.float64))

    return CachedCausalLM.from_function(vocab, next_logits, eos, **options)


def always(*probabilities: float) -> Law:
    """The same probabilities after everything."""
    return lambda prefix: probabilities


def random_law(seed: int, size: int = len(ABC)) -> Law:
    """Other probabilities after each prefix, fixed by the seed."""
    return lambda prefix: (
        np.random.default_rng([seed, len(prefix), *prefix]).dirichlet(np.ones(size)).tolist()
    )


class Counted:
    """A law that remembers what it was asked."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, prefix: tuple[int, ...]) -> Sequence[float]:
        self.asked.append(prefix)
        return self.law(prefix)


class Gated:
    """A law that answers nothing, on its own thread, before its gate is opened."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.entered = threading.Event()
        self.gate = threading.Event()

    def __call__(self, prefix: tuple[int, ...]) -> Sequence[float]:
        self.entered.set()
        assert self.gate.wait(60), "nobody opened the gate"
        return self.law(prefix)

    async def reached(self) -> None:
        """Until somebody's question waits at the gate."""
        while not self.entered.is_set():  # noqa: ASYNC110  # it is set on another thread
            await asyncio.sleep(0)


def sizes(lm: Any) -> list[int]:
    """The size of every batch so far, ascending."""
    return [size for size, count in lm.stats().batch_sizes.items() for _ in range(count)]
