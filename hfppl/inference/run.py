"""What all drivers do around their loop: start, step, copy, watch, keep the record."""

import math
import os
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ModelError
from ..random import Purpose, Streams
from .genealogy import Genealogy
from .population import Particles
from .progress import Progress
from .record_file import RecordFile, record_path
from .smc_record import RunInfo, SMCRecord, SMCStep
from .turns import check_count, fork, take_turns


class Run:
    """One run of a driver. As a context manager, it keeps the record's file, also if the run fails.

    Attributes:
        streams: the random streams.
        n_steps: how many steps have begun.
        record: what has happened so far.
    """

    def __init__(
        self,
        model: Any,
        n_particles: int,
        seed: int | None,
        max_steps: int | None,
        visualization_dir: str | os.PathLike[str] | None = None,
        json_file: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        on_step: Callable[[SMCStep], None] | None = None,
        *,
        driver: str,
        resampling_method: str | None = None,
        ess_threshold: float | None = None,
        n_beam: int | None = None,
    ) -> None:
        self._model = model
        self._n_particles = n_particles
        self._max_steps = None if max_steps is None else check_count("max_steps", max_steps)
        name = type(model).__name__
        path = record_path(name, visualization_dir, json_file)
        if on_step is not None and not callable(on_step):
            raise ArgumentError(f"on_step is a function of a step's record, not {on_step!r}")
        self._on_step = on_step
        self._progress = Progress(progress)
        self.streams = Streams(seed)
        self.n_steps = 0
        threshold = None if ess_threshold is None else float(ess_threshold)
        info = RunInfo(name, driver, n_particles, self.streams.seed, resampling_method, threshold, n_beam)
        self.record = SMCRecord(n_particles, keep_texts=path is not None, run=info)
        self._file = None if path is None else RecordFile(path, self.record)

    def __enter__(self) -> "Run":
        if self._file is not None:
            self._file.write()  # empty as it is: fail now rather than at the end
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.close()
        if self._file is not None:
            try:
                self._file.write()
            except OSError as failure:
                if error is None:
                    raise
                error.add_note(f"(and the record could not be written: {failure})")

    async def start(self) -> list[Any]:
        """N copies of the model, their start hooks run."""
        particles = [fork(self._model, self.streams, 0, slot) for slot in range(self._n_particles)]
        slots = [slot for slot, particle in enumerate(particles) if not particle.done_stepping()]
        await take_turns(particles, slots, self.streams, Purpose.START, 0, whole=())
        return particles

    def goes_on(self, particles: Sequence[Any]) -> bool:
        """Whether a particle has a step left to take, and may."""
        if self._max_steps is not None and self.n_steps >= self._max_steps:
            return False
        return any(not particle.done_stepping() for particle in particles)

    async def step(self, particles: Sequence[Any]) -> None:
        """Twists are taken back, and every unfinished particle takes a step."""
        self.n_steps += 1
        slots = []
        whole = list(particles)
        for slot, particle in enumerate(particles):
            particle.untwist()
            if not particle.done_stepping():
                slots.append(slot)
                whole[slot] = fork(particle, self.streams, self.n_steps, slot)
        await take_turns(particles, slots, self.streams, Purpose.STEP, self.n_steps, whole)

    def offspring(self, particles: Sequence[Any], ancestors: NDArray[np.int64]) -> list[Any]:
        """The particles that continue the ancestors: the first of each as it is, the others copies."""
        seen: set[int] = set()
        children = []
        for slot, ancestor in enumerate(ancestors.tolist()):
            parent = particles[ancestor]
            children.append(fork(parent, self.streams, self.n_steps, slot) if ancestor in seen else parent)
            seen.add(ancestor)
        return children

    def take_down(self, particles: Sequence[Any], ancestors: NDArray[np.int64], resampled: bool) -> None:
        """Add a step to the record, and show it to whoever watches."""
        step = self.record.add(particles, ancestors, resampled)
        if self._file is not None:
            self._file.update()
        self._progress.show(step, particles)
        if self._on_step is not None:
            self._on_step(step)

    async def move(self, particles: Sequence[Any], move: Callable[[Any], Awaitable[Any]]) -> list[Any]:
        """The population after every live particle has moved."""
        slots = [slot for slot, particle in enumerate(particles) if particle.weight > -math.inf]
        alive = [particles[slot] for slot in slots]
        before = [(particle.weight, particle._twist, particle.finished) for particle in alive]
        whole = [fork(particle, self.streams, self.n_steps, slot) for slot, particle in enumerate(particles)]
        moved = await take_turns(particles, slots, self.streams, Purpose.MOVE, self.n_steps, whole, act=move)
        result = list(particles)
        for slot, particle, kept in zip(slots, moved, before, strict=True):
            if not hasattr(particle, "done_stepping"):
                raise ModelError(f"move must return the particle to go on with, but returned {particle!r}")
            # Whatever the move scored on its way is its own affair.
            particle.weight, particle._twist, particle.finished = kept
            result[slot] = particle
        return result

    def result(self, particles: Sequence[Any], genealogy: Genealogy | None = None) -> Particles:
        """The population, twists taken back."""
        for particle in particles:
            particle.untwist()
        result = Particles(particles, self.record)
        if genealogy is not None and not result.n_unfinished:
            result.log_marginal_likelihood_se = genealogy.standard_error(result.log_weights)
        return result
