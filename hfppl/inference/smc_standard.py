"""Sequential Monte Carlo: many particles, reweighted at each step and resampled when few carry the weight."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..random import Purpose
from .genealogy import Genealogy
from .population import Particles
from .resampling import get_resampling_fn
from .run import Run
from .smc_record import SMCStep
from .turns import check_count, check_fraction, check_model
from .weights import effective_sample_size, log_mean, normalize

_ROUNDING = 1e-9  # an effective sample size so little below the threshold is not below it


async def smc_standard(
    model: Any,
    n_particles: int,
    ess_threshold: float = 0.5,
    visualization_dir: str | os.PathLike[str] | None = None,
    json_file: str | os.PathLike[str] | None = None,
    resampling_method: str = "stratified",
    *,
    seed: int | None = None,
    progress: bool | None = None,
    max_steps: int | None = None,
    on_step: Callable[[SMCStep], None] | None = None,
    move: Callable[[Any], Awaitable[Any]] | None = None,
) -> Particles:
    """Sample from the posterior of a model by sequential Monte Carlo (Doucet, de Freitas & Gordon 2001).

    Each particle is a copy of `model`. At each step all that have not finished take a step of their
    own; when the effective sample size falls below `ess_threshold * n_particles`, ancestors are drawn
    by weight, and every particle then weighs the mean; not after the last step, unless particles are to be
    moved. Finished particles stay in the population.

    Args:
        model: the model; it is copied, not changed.
        n_particles: how many particles.
        ess_threshold: a fraction of `n_particles`; 0 never resamples, 1 whenever weights differ.
        visualization_dir: folder to write the record to, texts included.
        json_file: name of the record, within that folder if one is given.
        resampling_method: "multinomial", "stratified", "systematic", "residual" or "ssp".
        seed: fixes every draw; without it, one number is taken from numpy's global generator.
        progress: show a line that tells how the run goes; by default in a terminal or a notebook,
            after two seconds.
        max_steps: stop after so many steps; particles that have not finished count neither in the
            posterior nor in log Z.
        on_step: called with each step's record.
        move: an async function from a particle to a particle, applied to all that are alive after
            resampling (resample-move, Gilks & Berzuini 2001). It must leave the posterior so far
            invariant, as a Metropolis-Hastings step does; the weight is kept.

    Returns:
        The particles, with log Z estimated by the log of their mean weight.

    Raises:
        ArgumentError: for arguments that cannot be right, before any model call.
        ModelError: for a model that is not written as one.
        NumericalError: for a weight of NaN or +inf.
    """
    check_model(model)
    n = check_count("n_particles", n_particles)
    check_fraction("ess_threshold", ess_threshold)
    if move is not None and not callable(move):
        raise ArgumentError(f"move is an async function from a particle to a particle, not {move!r}")
    resample = get_resampling_fn(resampling_method)
    run = Run(
        model,
        n,
        seed,
        max_steps,
        visualization_dir,
        json_file,
        progress,
        on_step,
        driver="smc_standard",
        resampling_method=resampling_method,
        ess_threshold=ess_threshold,
    )

    with run:
        particles = await run.start()
        ancestors, resampled = np.arange(n), False
        genealogy = Genealogy(n, resampling_method)
        while run.goes_on(particles):
            await run.step(particles)
            run.take_down(particles, ancestors, resampled)

            log_weights = np.array([particle.weight for particle in particles])
            ancestors, resampled = np.arange(n), False
            if not run.goes_on(particles) and move is None:
                break  # resampling would add noise, and hide how few particles count
            if 0 < effective_sample_size(log_weights) < ess_threshold * n * (1 - _ROUNDING):
                resampled = True
                rng = run.streams.generator(Purpose.RESAMPLE, run.n_steps)
                ancestors = resample(normalize(log_weights), rng)
                particles = run.offspring(particles, ancestors)
                genealogy.resample(ancestors)
                for particle in particles:
                    particle.weight = log_mean(log_weights)
                if move is not None:
                    particles = await run.move(particles, move)
        return run.result(particles, genealogy)
