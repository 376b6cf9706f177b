"""Random streams: one for each (seed, purpose, step, particle slot), so that a seed fixes every draw.

Whatever a particle draws comes from the stream of the slot and the step it runs in. Which particle
runs first, what shares its batch, or who watches, cannot change it, and copies never replay each
other's draws.
"""

import enum
import hashlib
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from .errors import ArgumentError, ModelError

__all__ = ["Purpose", "Streams", "Turn", "TurnOverError", "begin_turn", "current_turn", "rng"]


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


_MAX_QUESTIONS_AFTER_DEATH = 2000


class TurnOverError(BaseException):
    """Ends the turn of a dead particle that goes on and on. For the drivers alone to catch."""


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


class Turn:
    """One particle's turn: a start hook, a step or a move, in its slot.

    Attributes:
        dead: whether the particle has weight zero, so that nothing it still asks matters.
        choices: what takes the place of draws when a model is enumerated; None when it is sampled.
    """

    __slots__ = (
        "_generator",
        "_questions_after_death",
        "_streams",
        "choices",
        "dead",
        "purpose",
        "slot",
        "step",
    )

    def __init__(self, streams: Streams, purpose: Purpose, step: int, slot: int, choices: Any = None) -> None:
        self.choices = choices
        self._streams = streams
        self._generator: np.random.Generator | None = None
        self.purpose = purpose
        self.step = step
        self.slot = slot
        self.dead = False
        self._questions_after_death = 0

    @property
    def generator(self) -> np.random.Generator:
        """This turn's stream, made when first asked for."""
        if self.choices is not None and not self.dead:
            raise ModelError(
                "hfppl.rng() was used while the model is enumerated, which has to know every choice: "
                "draw with `await self.sample(...)` from a distribution that has a support()"
            )
        if self._generator is None:
            self._generator = self._streams.generator(self.purpose, self.step, self.slot)
        return self._generator

    def question_after_death(self) -> None:
        """Count one thing asked by a dead particle; a loop that never ends is ended here.

        Raises:
            TurnOverError: at the two-thousandth.
        """
        self._questions_after_death += 1
        if self._questions_after_death > _MAX_QUESTIONS_AFTER_DEATH:
            raise TurnOverError

    def __str__(self) -> str:
        when = {Purpose.START: "the start hook", Purpose.MOVE: f"the move after step {self.step}"}.get(
            self.purpose, f"step {self.step}"
        )
        return f"particle {self.slot}, {when}"


_TURN: ContextVar[Turn | None] = ContextVar("hfppl_turn", default=None)


def current_turn() -> Turn | None:
    """The turn this task runs in; None outside inference."""
    return _TURN.get()


def begin_turn(turn: Turn | None) -> Any:
    """Make `turn` the current one of this task; returns the token that `end_turn` takes."""
    return _TURN.set(turn)


def end_turn(token: Any) -> None:
    """Undo `begin_turn`."""
    _TURN.reset(token)


def rng() -> np.random.Generator:
    """The random generator to draw from, here and now.

    Inside a model's `start` or `step` it is the stream of the particle's slot and step. Distributions
    and models of your own draw from it, so that a seed fixes them too. Ask for it anew at each draw;
    do not keep it. Outside inference it draws from numpy's global generator (`np.random.seed`).
    """
    turn = _TURN.get()
    if turn is not None:
        return turn.generator
    return np.random.Generator(np.random.get_bit_generator())  # type: ignore[attr-defined]
