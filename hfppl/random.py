"""Random streams: one for each (seed, purpose, step, particle slot), so that a seed fixes every draw.

Whatever a particle draws comes from the stream of the slot and the step it runs in. Which particle
runs first, what shares its batch, or who watches, cannot change it, and copies never replay each
other's draws.
"""

import enum
import hashlib
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from .errors import ArgumentError
from .turn import current_turn

__all__ = ["Purpose", "SeedWords", "Streams", "rng"]


class Purpose(enum.IntEnum):
    """What a stream is for."""

    START = 0
    STEP = 1
    RESAMPLE = 2
    COPY = 3
    MOVE = 4


class Streams:
    """All the streams of one run."""

    def __init__(self, seed: int | None) -> None:
        """Args: `seed`, a non-negative int; None takes exactly one draw from numpy's global generator.

        Raises:
            ArgumentError: for any other seed.
        """
        if seed is None:
            seed = int(np.random.randint(0, 2**62, dtype=np.int64))
        elif isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ArgumentError(f"seed must be a non-negative int or None, got {seed!r}")
        self.seed = int(seed)

    def seed_words(self, purpose: Purpose, step: int, slot: int = 0, index: int = 0) -> "SeedWords":
        """What the stream of a purpose, a step and a slot is seeded with."""
        return SeedWords(f"{self.seed}/{int(purpose)}/{step}/{slot}/{index}")

    def generator(self, purpose: Purpose, step: int, slot: int = 0) -> np.random.Generator:
        """The stream of a purpose, a step and a slot, at its beginning."""
        words: Any = self.seed_words(purpose, step, slot)  # numpy's stubs know of SeedSequence only
        return np.random.Generator(np.random.SFC64(words))


class SeedWords(ISeedSequence):
    """The BLAKE2b hash of a name, as the seed of a bit generator.

    numpy's own `SeedSequence` would do as well, but a particle needs a new stream at each step, and it
    takes ten times as long.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """`n_words` words of `dtype`."""
        size = n_words * np.dtype(dtype).itemsize
        data = b"".join(
            hashlib.blake2b(f"{self._name}#{block}".encode()).digest() for block in range(-(-size // 64))
        )
        return np.frombuffer(data[:size], dtype=dtype).copy()


def rng() -> np.random.Generator:
    """The random generator to draw from, here and now.

    Inside a model's `start` or `step` it is the stream of the particle's slot and step. Distributions
    and models of your own draw from it, so that a seed fixes them too. Ask for it anew at each draw;
    do not keep it. Outside inference it draws from numpy's global generator (`np.random.seed`).
    """
    turn = current_turn()
    if turn is not None:
        return turn.generator
    return np.random.Generator(np.random.get_bit_generator())  # type: ignore[attr-defined]
