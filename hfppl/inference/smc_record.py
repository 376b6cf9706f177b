"""What happened at each step of a run."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .weights import effective_sample_size, log_mean

if TYPE_CHECKING:
    from ..viz import Picture


class RunInfo(NamedTuple):
    """What a run was asked to do.

    Attributes:
        model: name of the model's class.
        driver: name of the driver.
        n_particles: how many particles it has.
        seed: the seed of all its draws, also where it was not given.
        resampling_method: the resampling scheme; None if there is none.
        ess_threshold: the fraction of `n_particles` below which the effective sample size brings about
            resampling; None where that is not the rule.
        n_beam: continuations of each particle at a step, in SMC steering; None elsewhere.
    """

    model: str
    driver: str
    n_particles: int
    seed: int
    resampling_method: str | None = None
    ess_threshold: float | None = None
    n_beam: int | None = None


@dataclass(frozen=True, slots=True)
class SMCStep:
    """One step of a population, after it was taken and before any resampling.

    Attributes:
        number: 1 for the first step.
        ancestors: (N,) `ancestors[n] = m`: particle n continues particle m of the step before; the
            identity where nothing was resampled.
        resampled: whether resampling chose them.
        log_weights: (N,) nats, twists included.
        finished: (N,) which particles have taken their last step.
        texts: (N,) what the particles show; None unless texts are kept.
        seconds: from the beginning of the run to the end of this step; None if nobody measured it.
    """

    number: int
    ancestors: tuple[int, ...]
    resampled: bool
    log_weights: NDArray[np.float64]
    finished: NDArray[np.bool_]
    texts: tuple[str, ...] | None
    seconds: float | None = None

    def __post_init__(self) -> None:
        self.log_weights.flags.writeable = False
        self.finished.flags.writeable = False

    @property
    def ess(self) -> float:
        """Effective sample size."""
        return effective_sample_size(self.log_weights)

    @property
    def log_mean_weight(self) -> float:
        """Log of the mean weight, twists included: the estimate of log Z so far."""
        return log_mean(self.log_weights)


class SMCRecord:
    """The steps of a run: ancestors and weights always, texts only when asked for.

    `show()` draws it. `to_json()` writes the format of this family's particle viewer, a list of steps,
    with what that format lacks beside it; `load()` reads it.

    Attributes:
        n_particles: how many particles the run has.
        keep_texts: whether the steps hold the particles' texts.
        run: what the run was asked to do; None if it is not known.
        steps: the steps taken so far.
    """

    def __init__(self, n: int, keep_texts: bool = True, run: RunInfo | None = None) -> None:
        """Args: `n` is the number of particles."""
        self.n_particles = n
        self.keep_texts = keep_texts
        self.run = run
        self.steps: list[SMCStep] = []
        self._began = time.perf_counter()

    def add(
        self, particles: Sequence[Any], ancestors: Sequence[int] | NDArray[np.int64], resampled: bool
    ) -> SMCStep:
        """Take down a step that has just been taken."""
        texts = tuple(p.string_for_serialization() for p in particles) if self.keep_texts else None
        step = SMCStep(
            number=len(self.steps) + 1,
            ancestors=tuple(int(a) for a in ancestors),
            resampled=resampled,
            log_weights=np.array([p.weight for p in particles], dtype=np.float64),
            finished=np.array([p.done_stepping() for p in particles], dtype=bool),
            texts=texts,
            seconds=round(time.perf_counter() - self._began, 6),
        )
        self.steps.append(step)
        return step

    @property
    def history(self) -> list[dict[str, Any]]:
        """The steps in the viewer's format."""
        from .record_format import step_entry

        return [step_entry(self, index) for index in range(len(self.steps))]

    def to_json(self) -> str:
        """The steps in the viewer's format, as strict JSON, one step a line."""
        from .record_format import join_lines, step_line

        return "".join(join_lines([step_line(self, index) for index in range(len(self.steps))]))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json()` to a file, whole or not at all."""
        from .record_file import write_whole

        return write_whole(path, [self.to_json()])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SMCRecord":
        """The record in a file that `save`, or a driver's `json_file`, has written.

        A file in the viewer's older format, without our additions, is read as far as it goes: `run` and
        the steps' `seconds` are None, and of the finished particles only the dead are known as such.

        Raises:
            ArgumentError: if the file is not such a record, saying what is wrong with it.
            OSError: if it cannot be read.
        """
        from .record_format import read_record

        return read_record(path)

    def to_html(self) -> str:
        """The picture of the run: one HTML page that needs nothing else."""
        from ..viz import to_html

        return to_html(self)

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_html()` to a file, whole or not at all."""
        from .record_file import write_whole

        return write_whole(path, [self.to_html()])

    def show(self, path: str | os.PathLike[str] | None = None) -> "Picture":
        """The picture of the run, to look at.

        In a notebook, as the last line of a cell, the picture appears below it. Elsewhere it is saved
        and opened in the browser, and a line on stderr says where it is.

        Args:
            path: where to save it; by default a temporary file, and in a notebook nowhere.

        Returns:
            The picture, which notebooks display.
        """
        from ..viz import show

        return show(self, path)
