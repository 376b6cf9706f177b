"""SMC steering: several continuations of every particle, thinned out without repetition."""

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics import logsumexp
from ..random import Purpose
from .population import Particles
from .resampling import optimal_resample
from .run import Run
from .smc_record import SMCStep
from .turns import check_count, check_model
from .weights import LogWeights, normalize


async def smc_steer(
    model: Any,
    n_particles: int,
    n_beam: int,
    visualization_dir: str | os.PathLike[str] | None = None,
    json_file: str | os.PathLike[str] | None = None,
    *,
    seed: int | None = None,
    progress: bool | None = None,
    max_steps: int | None = None,
    on_step: Callable[[SMCStep], None] | None = None,
) -> Particles:
    """Sample from the posterior of a model by SMC steering (Lew et al. 2023, arXiv 2306.03081).

    At each step every unfinished particle is continued `n_beam` times, and of all continuations and
    finished particles at most `n_particles` are kept, without repetition, by the scheme of Fearnhead &
    Clifford (2003). If fewer than that are possible, dead ones fill the places.

    Args:
        model: the model; it is copied, not changed.
        n_particles: how many particles are kept.
        n_beam: how many continuations each of them gets.
        visualization_dir: folder to write the record to, texts included.
        json_file: name of the record, within that folder if one is given.
        seed: fixes every draw; without it, one number is taken from numpy's global generator.
        progress: show a line that tells how the run goes; by default in a terminal or a notebook,
            after two seconds.
        max_steps: stop after so many steps; particles that have not finished count neither in the
            posterior nor in log Z.
        on_step: called with each step's record, whose `ancestors` point into the step before.

    Returns:
        The particles, with log Z estimated by the log of the sum of their weights over `n_particles`.

    Raises:
        ArgumentError, ModelError, NumericalError: as `smc_standard`.
    """
    check_model(model)
    n = check_count("n_particles", n_particles)
    n_beam = check_count("n_beam", n_beam)
    run = Run(
        model,
        n,
        seed,
        max_steps,
        visualization_dir,
        json_file,
        progress,
        on_step,
        driver="smc_steer",
        resampling_method="optimal",
        n_beam=n_beam,
    )

    with run:
        particles = await run.start()
        while run.goes_on(particles):
            # Every unfinished particle's weight is shared out among its continuations.
            n_copies = [1 if particle.done_stepping() else n_beam for particle in particles]
            parents = np.repeat(np.arange(n), n_copies)
            candidates = run.offspring(particles, parents)
            for candidate, parent in zip(candidates, parents, strict=True):
                candidate.weight -= math.log(n_copies[parent])
            await run.step(candidates)

            log_weights = np.array([candidate.weight for candidate in candidates])
            rng = run.streams.generator(Purpose.RESAMPLE, run.n_steps)
            kept, new_log_weights = thin_out(log_weights, n, rng)
            particles = [candidates[i] for i in kept]
            for particle, log_weight in zip(particles, new_log_weights.tolist(), strict=True):
                particle.weight = log_weight
            run.take_down(particles, parents[kept], True)
        return run.result(particles)


def thin_out(
    log_weights: LogWeights, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], LogWeights]:
    """Exactly n of at least n candidates, without repetition.

    Args:
        log_weights: (K,) nats, unnormalised.
        n: how many to keep. Dead ones fill the places that no live candidate wants.
        rng: one uniform is drawn from it, if any choice is left.

    Returns:
        Their indices, the live ones first, and their new log-weights.
    """
    kept = np.arange(0)
    new_log_weights = np.zeros(0)
    rest = log_weights.copy()
    # Once, unless some weights vanish beside the others': those compete for the places left.
    while len(kept) < n and (total := logsumexp(rest)) > -math.inf:
        chosen, weights = optimal_resample(normalize(rest), n - len(kept), rng)
        kept = np.append(kept, chosen)
        new_log_weights = np.append(new_log_weights, total + np.log(weights))
        rest[normalize(rest) > 0] = -np.inf
    dead = np.flatnonzero(log_weights == -np.inf)[: n - len(kept)]
    return np.append(kept, dead), np.append(new_log_weights, np.full(len(dead), -np.inf))
