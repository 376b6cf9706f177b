"""Importance sampling: independent particles, weighted and never resampled."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .genealogy import Genealogy
from .population import Particles
from .run import Run
from .smc_record import SMCStep
from .turns import check_count, check_model


async def importance_sampling(
    model: Any,
    n_particles: int,
    visualization_dir: str | os.PathLike[str] | None = None,
    json_file: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    progress: bool | None = None,
    max_steps: int | None = None,
    on_step: Callable[[SMCStep], None] | None = None,
) -> Particles:
    """Sample from the posterior of a model by importance sampling (Kahn & Marshall 1953).

    Args:
        model: the model; it is copied, not changed.
        n_particles: how many independent copies are run.
        visualization_dir: folder to write the record to, texts included.
        json_file: name of the record, within that folder if one is given.
        seed: fixes every draw; without it, one number is taken from numpy's global generator.
        progress: show a line that tells how the run goes; by default in a terminal or a notebook,
            after two seconds.
        max_steps: stop after so many steps; particles that have not finished count neither in the
            posterior nor in log Z.
        on_step: called with each step's record.

    Returns:
        The particles, with log Z estimated by the log of their mean weight.

    Raises:
        ArgumentError, ModelError, NumericalError: as `smc_standard`.
    """
    check_model(model)
    n = check_count("n_particles", n_particles)
    run = Run(
        model,
        n,
        seed,
        max_steps,
        visualization_dir,
        json_file,
        progress,
        on_step,
        driver="importance_sampling",
    )

    with run:
        particles = await run.start()
        while run.goes_on(particles):
            await run.step(particles)
            run.take_down(particles, np.arange(n), False)
        return run.result(particles, Genealogy(n, None))
