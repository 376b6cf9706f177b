"""Every driver, resampling scheme, threshold and population size against answers worked out by hand.

Unbiased at every N are the estimate of Z, and (1/N) sum of w 1[key = k], whose expectation is the
unnormalised mass of k. Both are compared within five standard errors, over fixed seeds.
"""

import itertools
import math
from collections.abc import Awaitable, Callable, Iterator

import numpy as np
import pytest

import hfppl
from hfppl import Particles, importance_sampling, smc_standard, smc_steer
from hfppl.inference import RESAMPLING_METHODS

from .reference import REFERENCES, Reference

Driver = Callable[[object, int], Awaitable[Particles]]


def standard(method: str, threshold: float, n: int) -> Driver:
    return lambda model, seed: smc_standard(model, n, threshold, resampling_method=method, seed=seed)


def steer(n: int, n_beam: int) -> Driver:
    return lambda model, seed: smc_steer(model, n, n_beam, seed=seed)


METHODS = sorted(RESAMPLING_METHODS)
THRESHOLDS = (0, 0.5, 1.0)
SIZES = (1, 2, 5, 20)
BEAMS = ((1, 2), (2, 1), (2, 3), (5, 2), (5, 3), (20, 2))

Cell = tuple[str, str, Driver]  # reference model, what it is run with, the driver


def standard_cell(name: str, method: str, threshold: float, n: int) -> Cell:
    return name, f"{method}-{threshold}-N{n}", standard(method, threshold, n)


def steer_cell(name: str, n: int, n_beam: int) -> Cell:
    return name, f"steer-N{n}-M{n_beam}", steer(n, n_beam)


def importance_cell(name: str, n: int) -> Cell:
    return name, f"importance-N{n}", lambda model, seed: importance_sampling(model, n, seed=seed)


def pairwise_cells() -> Iterator[Cell]:
    """Every pair of model, method, threshold and size comes up at least once."""
    for m, name in enumerate(REFERENCES):
        for k, method in enumerate(METHODS):
            yield standard_cell(name, method, THRESHOLDS[(k + m) % 3], SIZES[(k + m) % 4])
        yield steer_cell(name, *BEAMS[m % len(BEAMS)])
        yield steer_cell(name, *BEAMS[(m + 3) % len(BEAMS)])
        yield importance_cell(name, SIZES[m % 4])


def all_cells() -> Iterator[Cell]:
    for name in REFERENCES:
        for method, threshold, n in itertools.product(METHODS, THRESHOLDS, SIZES):
            yield standard_cell(name, method, threshold, n)
        for n, n_beam in BEAMS:
            yield steer_cell(name, n, n_beam)
        for n in SIZES:
            yield importance_cell(name, n)


async def estimates(reference: Reference, driver: Driver, n_runs: int) -> np.ndarray:
    """(n_runs, 1 + number of keys): estimates of Z, and of the unnormalised mass of every key."""
    keys = {key: i + 1 for i, key in enumerate(reference.exact)}
    rows = np.zeros((n_runs, 1 + len(keys)))
    model = reference.make()
    for run in range(n_runs):
        particles = await driver(model, run)
        rows[run, 0] = math.exp(particles.log_marginal_likelihood)
        for particle, log_weight in zip(particles, particles.log_weights, strict=True):
            if log_weight > -math.inf:
                rows[run, keys[reference.key(particle)]] += math.exp(log_weight) / len(particles)
    return rows


_ENOUGH = 25  # draws to be expected of a key before its mean is anything like normal


def z_scores(rows: np.ndarray, reference: Reference, n_particles: int) -> dict[str, float]:
    """Distance of each mean from the exact value, in standard errors.

    Keys too rare to be seen often are taken together: an estimate that is nearly always zero, and once in
    a while a large weight, is far from normal. The standard error of a key is at least that of drawing it
    or not.
    """
    n_runs = len(rows)
    masses = np.array(list(reference.exact.values()))
    often = masses / reference.z * n_runs * n_particles >= _ENOUGH
    names = ["Z", *(key for key, kept in zip(reference.exact, often, strict=True) if kept), "the rest"]
    found = np.column_stack([rows[:, 0], rows[:, 1:][:, often], rows[:, 1:][:, ~often].sum(axis=1)])
    exact = np.array([reference.z, *masses[often], masses[~often].sum()])
    floor = np.where(exact < reference.z, exact * reference.z, 0) / (n_runs * n_particles)
    error = np.sqrt(np.maximum(found.var(axis=0, ddof=1) / n_runs, floor))
    difference = found.mean(axis=0) - exact
    # A constant estimate has no error to speak of: it must be right to rounding.
    scores = np.where(np.abs(difference) < 1e-12, 0.0, difference / np.maximum(error, 1e-300))
    return dict(zip(names, scores.tolist(), strict=True))


CELLS = list(pairwise_cells())
ALL_CELLS = list(all_cells())


def test_the_cells_cover_every_pair() -> None:
    chosen = [
        (name, *label.split("-"))
        for name, label, _ in CELLS
        if label.count("-") == 2 and "steer" not in label
    ]
    factors = [list(REFERENCES), METHODS, [str(t) for t in THRESHOLDS], [f"N{n}" for n in SIZES]]
    for a, b in itertools.combinations(range(4), 2):
        assert {(cell[a], cell[b]) for cell in chosen} == set(itertools.product(factors[a], factors[b]))


def size_of(label: str) -> int:
    return int(label.split("N")[1].split("-")[0])


async def check(reference: Reference, label: str, driver: Driver) -> None:
    n = size_of(label)
    n_runs = {1: 400, 2: 250, 5: 150, 20: 60}[n]  # small populations vary more and cost less
    scores = z_scores(await estimates(reference, driver, n_runs), reference, n)
    worst = max(scores, key=lambda name: abs(scores[name]))
    assert abs(scores[worst]) < 5, f"{worst} is off by {scores[worst]:.1f} standard errors"


@pytest.mark.parametrize(("name", "label", "driver"), CELLS, ids=[f"{n}-{lab}" for n, lab, _ in CELLS])
async def test_estimates_are_unbiased(name: str, label: str, driver: Driver) -> None:
    await check(REFERENCES[name], label, driver)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "label", "driver"), ALL_CELLS, ids=[f"{n}-{lab}" for n, lab, _ in ALL_CELLS]
)
async def test_estimates_are_unbiased_on_the_full_grid(name: str, label: str, driver: Driver) -> None:
    await check(REFERENCES[name], label, driver)


POOL = ["condition", "masks observed", "proposal", "twist", "submodels", "words", "temperature"]


@pytest.mark.parametrize(
    "driver",
    [standard("multinomial", 1.0, 40), standard("residual", 0.5, 40), steer(40, 2)],
    ids=["multinomial", "residual", "steer"],
)
async def test_a_five_percent_error_would_be_seen(driver: Driver) -> None:
    """Pooled over models, the estimate of Z over Z is one, with a standard error below one percent."""
    ratios = []
    for name in POOL:
        rows = await estimates(REFERENCES[name], driver, 40)
        ratios.append(rows[:, 0] / REFERENCES[name].z)
    error = math.sqrt(sum(float(r.var(ddof=1)) / len(r) for r in ratios)) / len(ratios)
    mean = float(np.mean([r.mean() for r in ratios]))
    assert error < 0.01, "too few runs: a five percent error would not be five standard errors"
    assert abs(mean - 1) < 5 * error


N_CONTROL = 10


async def test_a_biased_resampler_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: ancestors chosen without regard to their weights."""

    def careless(weights, rng=None, n=None):
        return np.sort(rng.integers(len(weights), size=len(weights)))

    monkeypatch.setitem(RESAMPLING_METHODS, "stratified", careless)
    reference = REFERENCES["words"]
    rows = await estimates(reference, standard("stratified", 1.0, N_CONTROL), 150)
    assert max(map(abs, z_scores(rows, reference, N_CONTROL).values())) > 5


async def test_a_resampler_of_flattened_weights_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: ancestors chosen by the square roots of their weights."""
    right = RESAMPLING_METHODS["stratified"]

    def flattened(weights, rng=None, n=None):
        roots = np.sqrt(weights)
        return right(roots / roots.sum(), rng, n)

    monkeypatch.setitem(RESAMPLING_METHODS, "stratified", flattened)
    reference = REFERENCES["twist"]
    rows = await estimates(reference, standard("stratified", 1.0, 40), 40)
    assert max(map(abs, z_scores(rows, reference, 40).values())) > 5


async def test_a_dropped_weight_is_seen() -> None:
    """Negative control: a model that forgets one of its observations."""

    class Forgetful(REFERENCES["submodels"].make):  # type: ignore[misc]
        def score(self, score: float) -> None:
            if self.context.token_count < 3:
                super().score(score)

    reference = Reference(Forgetful, REFERENCES["submodels"].exact)
    rows = await estimates(reference, standard("stratified", 0.5, N_CONTROL), 150)
    assert max(map(abs, z_scores(rows, reference, N_CONTROL).values())) > 5


@pytest.mark.parametrize("driver", [standard("systematic", 0.5, 2000), steer(700, 2)], ids=["smc", "steer"])
async def test_the_posterior_of_many_particles_is_the_exact_one(driver: Driver) -> None:
    reference = REFERENCES["temperature"]
    particles = await driver(reference.make(), 5)
    posterior = particles.posterior(reference.key)
    exact = {key: mass / reference.z for key, mass in reference.exact.items()}
    distance = 0.5 * sum(abs(posterior.get(key, 0) - p) for key, p in exact.items())
    assert set(posterior) <= set(exact)
    assert distance < 0.06
    assert hfppl.logsumexp(particles.log_weights) - math.log(len(particles)) == pytest.approx(
        math.log(reference.z), abs=0.1
    )
