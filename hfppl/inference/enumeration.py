"""The exact posterior of a model, by taking every path through its discrete choices."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, ModelError
from ..numerics import logsumexp
from ..random import Purpose, Streams
from ..turn import current_turn
from .population import Particles
from .progress import Progress
from .turns import check_count, check_model, fork, take_turns

_WAVE = 256  # paths followed side by side, so that their language-model requests share batches
_ROUNDING = 1e-9  # nats

Choice = tuple[Any, float]  # a value and its log-probability


class ExactParticles(Particles):
    """Every path of a model, one particle each, with its exact unnormalised probability as weight.

    Attributes:
        log_z_bounds: lower and upper bound of log Z, equal if every path was followed. What was left
            out counts in full towards the upper one, which is a bound only for models that never call
            `score` with more than 0; if a path has been seen to gain, it is +inf.
        missed_by_proposals: the share of Z that lies on paths which some proposal cannot draw. Anything
            above 0 is mass that no sampler with these proposals finds.
    """

    log_z_bounds: tuple[float, float]
    missed_by_proposals: float

    def _summary(self) -> str:
        lower, upper = self.log_z_bounds
        parts = [f"{len(self)} paths", f"log Z {lower:z.3f}" + (f" to {upper:z.3f}" if upper > lower else "")]
        parts += [f"{self.n_unfinished} unfinished"] if self.n_unfinished else []
        missed = self.missed_by_proposals
        parts += [f"{missed:.2%} out of the proposals' reach"] if missed > 0 else []
        return ", ".join(parts)


class Choices:
    """The choices of one step: the first ones are given, and the rest takes the first way at each.

    Attributes:
        taken: the choices made.
        branches: the choices of every path that parts from this one.
        missed: whether a proposal could not have drawn one of the values.
    """

    def __init__(self, given: Sequence[Choice]) -> None:
        self._given = given
        self.taken: list[Choice] = []
        self.branches: list[tuple[Choice, ...]] = []
        self.missed = False
        self._busy = False

    async def sample(self, model: Any, dist: Any, proposal: Any) -> Any:
        """Takes the place of a draw: a value, and its probability counted in the weight.

        Raises:
            ModelError: where the order of choices is not certain, or a copy of the particle draws.
        """
        turn = current_turn()
        if turn is not None and turn.is_of_a_copy:
            raise ModelError(
                "a step that runs another model, such as a copy of itself, cannot be enumerated: "
                "its draws would have to be followed apart"
            )
        if self._busy:
            raise ModelError(
                "two samples of one step were drawn at the same time (asyncio.gather, or a task), so their "
                "order is not certain: await them one after the other to enumerate the model"
            )
        self._busy = True
        try:
            return await self._choose(model, dist, proposal)
        finally:
            self._busy = False

    async def _choose(self, model: Any, dist: Any, proposal: Any) -> Any:
        if len(self.taken) < len(self._given):
            value, log_prob = self._given[len(self.taken)]
        else:
            outcomes = [choice for choice in await dist.outcomes() if choice[1] > -math.inf]
            if not outcomes:
                model.condition(False)
                return await model._sample(dist, None)  # which is dead now: anything to go on with
            self.branches += [(*self.taken, other) for other in outcomes[1:]]
            value, log_prob = outcomes[0]
        self.taken.append((value, log_prob))
        await dist.intervene(value)
        if proposal is not None and await proposal.log_prob(value) == -math.inf:
            self.missed = True
            await proposal.intervene(value)  # it must move on along with the target
        model.weight += log_prob
        return value


async def enumerate_exact(
    model: Any,
    *,
    max_paths: int = 100_000,
    min_prob: float = 0.0,
    max_steps: int | None = None,
    progress: bool | None = None,
) -> ExactParticles:
    """The exact posterior and Z of a model with discrete choices, by following every one of them.

    Each `sample` becomes all the outcomes of its distribution (not of the proposal); each `observe`,
    `condition` and `score` counts as it stands, and twists do not. A step is replayed from its beginning
    for every combination of choices, so it must depend on nothing else.

    Args:
        model: the model; it is copied, not changed.
        max_paths: at most so many paths are followed at a time, the likeliest.
        min_prob: paths whose weight falls below this are not followed.
        max_steps: stop after so many steps; unfinished paths count as in the other drivers.
        progress: show a line that tells how far it is; by default in a terminal or a notebook, after two
            seconds.

    Returns:
        One particle for each possible path, with bounds of log Z for what was not followed.

    Raises:
        ArgumentError: for arguments that cannot be right.
        ModelError: for a draw whose values cannot be listed, naming it; for use of `hfppl.rng()`.
    """
    check_model(model)
    check_count("max_paths", max_paths)
    if not 0 <= min_prob < 1:
        raise ArgumentError(f"min_prob is a probability below 1, not {min_prob}")
    if max_steps is not None:
        check_count("max_steps", max_steps)
    with contextlib.closing(Progress(progress)) as shown:
        paths = _Paths(max_paths, math.log(min_prob) if min_prob > 0 else -math.inf, shown)
        frontier = [_Path(fork(model, paths.streams, 0, 0), missed=False)]
        if not frontier[0].model.done_stepping():
            frontier = await paths.expand(frontier, Purpose.START, 0)
        step = 0
        while True:
            paths.ended += [path for path in frontier if path.model.done_stepping()]
            frontier = [path for path in frontier if not path.model.done_stepping()]
            if not frontier or step == max_steps:
                return paths.result(frontier)
            step += 1
            frontier = await paths.expand(frontier, Purpose.STEP, step)


class _Path:
    """A particle at the end of a step, and whether a proposal has missed it so far."""

    def __init__(self, model: Any, missed: bool) -> None:
        self.model = model
        self.missed = missed


def _models(paths: Sequence[_Path]) -> list[Any]:
    return [path.model for path in paths]


class _Paths:
    """The paths being followed, those that have ended, and the mass of those that were left out."""

    def __init__(self, max_paths: int, log_min_prob: float, progress: Progress) -> None:
        self.streams = Streams(0)  # for copies of the user's generators; nothing is drawn
        self.ended: list[_Path] = []
        self._progress = progress
        self._max_paths = max_paths
        self._log_min_prob = log_min_prob
        self._left_out: list[float] = []
        self._gains = False

    async def expand(self, paths: list[_Path], purpose: Purpose, step: int) -> list[_Path]:
        """Every way in which the paths can take one step."""
        n_before = len(self.ended)
        children: list[_Path] = []
        waiting: list[tuple[_Path, tuple[Choice, ...]]] = [(path, ()) for path in paths]
        while waiting:
            wave, waiting = waiting[:_WAVE], waiting[_WAVE:]
            particles = [fork(path.model, self.streams, step, 0) for path, _ in wave]
            choices = [Choices(given) for _, given in wave]
            await take_turns(
                particles, range(len(wave)), self.streams, purpose, step, whole=(), choices=choices
            )
            for (path, _), particle, made in zip(wave, particles, choices, strict=True):
                particle.untwist()
                if particle.weight > -math.inf:
                    if particle.weight < self._log_min_prob and not particle.done_stepping():
                        self._left_out.append(float(particle.weight))
                    else:
                        children.append(_Path(particle, path.missed or made.missed))
                    self._gains |= particle.weight > _log_weight(path, made.taken) + _ROUNDING
                waiting += [(path, branch) for branch in made.branches]
            waiting = self._promising(waiting, self._max_paths - len(children))
            self._progress.show_paths(step, lambda: _models(self.ended[:n_before] + children), len(waiting))
        return children

    def _promising(
        self, waiting: list[tuple[_Path, tuple[Choice, ...]]], room: int
    ) -> list[tuple[_Path, tuple[Choice, ...]]]:
        """What is worth following and has room; the rest is counted as left out."""
        log_weights = [_log_weight(path, branch) for path, branch in waiting]
        if len(waiting) <= room and min(log_weights, default=0.0) >= self._log_min_prob:
            return waiting
        order = sorted(range(len(waiting)), key=lambda i: -log_weights[i])
        kept = [i for i in order[: max(0, room)] if log_weights[i] >= self._log_min_prob]
        self._left_out += [log_weights[i] for i in order[len(kept) :]]
        return [waiting[i] for i in kept]

    def result(self, unfinished: list[_Path]) -> ExactParticles:
        """All paths as particles."""
        finished = self.ended
        log_z = logsumexp([path.model.weight for path in finished])
        left_out = self._left_out + [path.model.weight for path in unfinished]
        missed = logsumexp([path.model.weight for path in finished if path.missed])
        particles = ExactParticles(_models(finished + unfinished), None, log_z)
        upper = math.inf if left_out and self._gains else logsumexp([log_z, *left_out])
        particles.log_z_bounds = (log_z, upper)
        particles.missed_by_proposals = math.exp(missed - log_z) if missed > -math.inf else 0.0
        return particles


def _log_weight(path: _Path, choices: Sequence[Choice]) -> float:
    return float(path.model.weight) + math.fsum(log_prob for _, log_prob in choices)
