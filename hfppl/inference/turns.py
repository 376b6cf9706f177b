"""Particles taking their turns: all at once, each in a task and a random stream of its own."""

import asyncio
import contextlib
import copy
import inspect
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from numbers import Real
from typing import Any

from ..copying import renew_generators, shared_memo
from ..errors import ArgumentError, CopyError, ModelError, NumericalError
from ..random import Purpose, Streams
from ..turn import Turn, TurnOverError, begin_turn
from .population import Particles


def check_model(model: Any) -> None:
    """Raise a ModelError for what cannot be run as a model."""
    if inspect.isclass(model):
        raise ModelError(f"inference takes a model, not a class: pass {model.__name__}(...)")
    if not all(hasattr(model, name) for name in ("step", "start", "done_stepping", "untwist")):
        raise ModelError(f"{type(model).__name__} is not a model: subclass hfppl.Model")
    if not hasattr(model, "_twist"):
        raise ModelError(f"{type(model).__name__}.__init__ must call super().__init__()")
    for name in ("step", "start"):
        method = getattr(model, name)
        if inspect.isasyncgenfunction(method):
            raise ModelError(f"{type(model).__name__}.{name} must return, not `yield`")
        if inspect.isgeneratorfunction(method):
            raise ModelError(f"{type(model).__name__}.{name} must be an `async def`, not a generator")


def check_count(name: str, value: Any) -> int:
    """A positive int.

    Raises:
        ArgumentError: for anything else.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ArgumentError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value.__index__())


def check_fraction(name: str, value: Any) -> None:
    """Raise an ArgumentError unless it is a number between 0 and 1."""
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ArgumentError(f"{name} is a fraction, from 0 to 1, not {value!r}")


def fork(particle: Any, streams: Streams, step: int, slot: int) -> Any:
    """A copy of a particle for a slot, with random streams of its own."""
    parts: dict[int, Any] = shared_memo()
    n_shared = len(parts)
    child = copy.deepcopy(particle, parts)
    if child is particle:
        raise CopyError(f"copying {type(particle).__name__} returned the same object, not a copy")
    renew_generators(itertools.islice(parts.values(), n_shared, None), streams, step, slot)
    return child


async def take_turns(
    particles: Sequence[Any],
    slots: Sequence[int],
    streams: Streams,
    purpose: Purpose,
    step: int,
    whole: Sequence[Any],
    choices: Sequence[Any] | None = None,
    act: Callable[[Any], Awaitable[Any]] | None = None,
) -> list[Any]:
    """One start hook, step or move of the particles in `slots`, all side by side.

    Args:
        particles: the population.
        slots: which of them have a turn.
        streams: the random streams of the run.
        purpose: START, STEP or MOVE.
        step: the number of the step.
        whole: the last whole population, attached to whatever a particle raises.
        choices: for each of them, what takes the place of its draws; None to draw.
        act: what a MOVE does.

    Returns:
        What each of them returned.

    Raises:
        BaseException: whatever the first particle to fail raised, unchanged in type, after all others
            have been cancelled. A note names the particle; the attribute `particles` holds `whole`.
    """
    turns = [
        Turn(particles[slot], streams, purpose, step, slot, None if choices is None else choices[i])
        for i, slot in enumerate(slots)
    ]
    tasks = [asyncio.ensure_future(_take_turn(particles[turn.slot], turn, act)) for turn in turns]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        failures = [
            (turn, error)
            for turn, task in zip(turns, tasks, strict=True)
            if task.done() and (error := asyncio.CancelledError() if task.cancelled() else task.exception())
        ]
        pending = [task for task in tasks if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.gather(*pending, return_exceptions=True)
        if failures or pending:
            for turn in turns:
                _close_forgotten(particles[turn.slot])
    if failures:
        turn, error = failures[0]
        with contextlib.suppress(Exception):  # some exception classes take no attributes
            error.add_note(f"(raised by {turn})")
            error.particles = Particles(_untwisted(whole))  # type: ignore[attr-defined]  # nothing is lost
        raise error
    return [task.result() for task in tasks]


async def _take_turn(particle: Any, turn: Turn, act: Callable[[Any], Awaitable[Any]] | None) -> Any:
    begin_turn(turn)
    name = turn.purpose.name.lower()
    result = None
    try:
        outcome = getattr(particle, name)() if act is None else act(particle)
        if not inspect.isawaitable(outcome):
            raise ModelError(
                f"{type(particle).__name__}.{name} must be an `async def`: calling it returned {outcome!r}, "
                "which cannot be awaited"
            )
        result = await outcome
    except TurnOverError:
        pass
    except BaseExceptionGroup as group:  # the same, from a task group of the user's
        if group.split(TurnOverError)[1] is not None:
            raise
    except Exception as error:
        forgotten = particle._forgotten_calls()
        if forgotten and not isinstance(error, ModelError):
            with contextlib.suppress(Exception):
                error.add_note(f"self.{forgotten[0][0]}(...) was called without `await` before this")
        raise
    if particle._forgotten_calls():
        await asyncio.sleep(0)  # a call put into a task may not have begun
        forgotten = particle._forgotten_calls()
        if forgotten:
            raise ModelError(
                f"self.{forgotten[0][0]}(...) was called without `await` in "
                f"{type(particle).__name__}.{name}: write `await self.{forgotten[0][0]}(...)`"
            )
    if math.isnan(particle.weight) or particle.weight == math.inf:
        raise NumericalError(
            f"the log-weight of {turn} is {particle.weight}; it must be a number of nats, or -inf"
        )
    if particle.weight == -math.inf and not particle.done_stepping() and turn.purpose is not Purpose.MOVE:
        particle.finish()
    return result


def _close_forgotten(particle: Any) -> None:
    """Spare the user Python's own warning about coroutines that were never awaited."""
    for _, call in particle._forgotten_calls():
        call.close()
    particle._calls.clear()


def _untwisted(particles: Sequence[Any]) -> list[Any]:
    for particle in particles:
        particle.untwist()
    return list(particles)
