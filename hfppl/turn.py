"""Whose turn it is: which particle this task runs, in which step, with which random stream."""

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ModelError

if TYPE_CHECKING:
    from .random import Purpose, Streams

__all__ = ["Turn", "TurnOverError", "begin_turn", "current_turn", "end_turn"]

_MAX_QUESTIONS_AFTER_DEATH = 2000


class TurnOverError(BaseException):
    """Ends the turn of a dead particle that goes on and on. For the drivers alone to catch."""


class Turn:
    """One particle's turn: a start hook, a step or a move, in its slot.

    A step may run copies of its particle, to look ahead for instance. Such a copy has a turn of its own
    inside this one (`of_a_copy`), so that its death is not its original's; it draws from the same stream.

    Attributes:
        owner: the particle.
        dead: whether it has weight zero, so that nothing it still asks matters.
        choices: what takes the place of draws when a model is enumerated; None when it is sampled.
    """

    __slots__ = (
        "_around",
        "_generator",
        "_questions_after_death",
        "_streams",
        "choices",
        "dead",
        "owner",
        "purpose",
        "slot",
        "step",
    )

    def __init__(
        self,
        owner: object,
        streams: "Streams",
        purpose: "Purpose",
        step: int,
        slot: int,
        choices: Any = None,
    ) -> None:
        self.owner = owner
        self.choices = choices
        self.purpose = purpose
        self.step = step
        self.slot = slot
        self.dead = False
        self._streams = streams
        self._generator: np.random.Generator | None = None
        self._questions_after_death = 0
        self._around: Turn | None = None

    def of_a_copy(self, owner: object) -> "Turn":
        """The turn of another model that runs inside this one."""
        turn = Turn(owner, self._streams, self.purpose, self.step, self.slot, self.choices)
        turn._around = self
        return turn

    @property
    def is_of_a_copy(self) -> bool:
        """Whether it runs inside another particle's turn."""
        return self._around is not None

    def is_inside(self, turn: "Turn") -> bool:
        """Whether it runs directly inside `turn`."""
        return self._around is turn

    @property
    def generator(self) -> np.random.Generator:
        """This turn's stream, made when first asked for."""
        if self._around is not None:
            return self._around.generator
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
            ModelError: the same, for a copy, whose end must not be its original's.
        """
        self._questions_after_death += 1
        if self._questions_after_death > _MAX_QUESTIONS_AFTER_DEATH:
            if self._around is not None:
                raise ModelError("a copy of a particle, run inside a step, went on and on after it had died")
            raise TurnOverError

    def __str__(self) -> str:
        when = {"START": "the start hook", "MOVE": f"the move after step {self.step}"}
        return f"particle {self.slot}, {when.get(self.purpose.name, f'step {self.step}')}"


_TURN: ContextVar[Turn | None] = ContextVar("hfppl_turn", default=None)


def current_turn() -> Turn | None:
    """The turn this task runs in; None outside inference."""
    return _TURN.get()


def begin_turn(turn: Turn) -> Token[Turn | None]:
    """Make `turn` the current one of this task; returns what `end_turn` takes."""
    return _TURN.set(turn)


def end_turn(token: Token[Turn | None]) -> None:
    """Undo `begin_turn`."""
    _TURN.reset(token)
