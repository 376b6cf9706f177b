"""What happened at each step of a run, and the file it can be kept in."""

import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .weights import effective_sample_size, log_mean


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
    """

    number: int
    ancestors: tuple[int, ...]
    resampled: bool
    log_weights: NDArray[np.float64]
    finished: NDArray[np.bool_]
    texts: tuple[str, ...] | None

    @property
    def ess(self) -> float:
        """Effective sample size."""
        return effective_sample_size(self.log_weights)

    @property
    def log_mean_weight(self) -> float:
        """Log of the mean weight, twists included."""
        return log_mean(self.log_weights)


class SMCRecord:
    """The steps of a run: ancestors and weights always, texts only when asked for.

    `to_json()` writes the format of this family's particle viewer: a list of steps, each with a mode
    ("init", "smc_step" or "resample"), and for each particle its text, log-weight and increment.
    """

    def __init__(self, n: int, keep_texts: bool = True) -> None:
        """Args: `n` is the number of particles."""
        self.n_particles = n
        self.keep_texts = keep_texts
        self.steps: list[SMCStep] = []

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
        )
        step.log_weights.flags.writeable = False
        step.finished.flags.writeable = False
        self.steps.append(step)
        return step

    @property
    def history(self) -> list[dict[str, Any]]:
        """The steps in the viewer's format."""
        before = np.zeros(self.n_particles)
        history = []
        for step in self.steps:
            before = before[list(step.ancestors)]
            mode = "init" if step.number == 1 else "resample" if step.resampled else "smc_step"
            texts = step.texts or ("",) * len(step.log_weights)
            history.append(
                {
                    "step": step.number,
                    "mode": mode,
                    "ancestors": list(step.ancestors),
                    "particles": [
                        {
                            "contents": text if "<<<" in text and ">>>" in text else f"<<<>>>{text}",
                            "logweight": _number(weight),
                            "weight_incr": _number(weight - old if old > -math.inf else -math.inf),
                        }
                        for text, weight, old in zip(texts, step.log_weights, before, strict=True)
                    ],
                }
            )
            before = step.log_weights
        return history

    def to_json(self) -> str:
        """The steps in the viewer's format, as strict JSON."""
        return json.dumps(self.history, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json()` to a file, whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.to_json())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        return target


def record_path(
    model_name: str,
    visualization_dir: str | os.PathLike[str] | None,
    json_file: str | os.PathLike[str] | None,
) -> Path | None:
    """Where a run's record goes: `json_file`, within `visualization_dir` if given; None for nowhere."""
    if visualization_dir is None:
        return None if json_file is None else Path(json_file)
    if json_file is None:
        json_file = f"{model_name}-{datetime.now():%Y%m%d-%H%M%S-%f}.json"
    return Path(visualization_dir) / json_file


def _number(value: float) -> str:
    return "-Infinity" if value == -math.inf else repr(float(value))
