"""Resampling: unbiased numbers of offspring, no impossible ancestor, no index out of range."""

import math

import numpy as np
import pytest

from hfppl import Bernoulli, Model, smc_standard
from hfppl.errors import ArgumentError
from hfppl.inference.resampling import RESAMPLING_METHODS, get_resampling_fn, optimal_resample
from hfppl.inference.weights import effective_sample_size, log_mean, normalize

WEIGHTS = {
    "uneven": np.array([0.5, 0.2, 0.15, 0.1, 0.05]),
    "with zeros": np.array([0.0, 0.7, 0.0, 0.3, 0.0]),
    "equal": np.full(10, 0.1),
    "one": np.array([0.0, 1.0, 0.0]),
    "thirds": np.array([1 / 3, 1 / 3, 1 / 3]),
}
SCHEMES = sorted(RESAMPLING_METHODS)


class Fixed:
    """A generator whose uniforms are all the same."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def random(self, n: int | None = None):
        return self.uniform if n is None else np.full(n, self.uniform)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n", [None, 1, 3, 17])
def test_offspring_are_unbiased(scheme: str, name: str, n: int | None) -> None:
    weights = WEIGHTS[name]
    rng = np.random.default_rng(3)
    size = len(weights) if n is None else n
    counts = np.array(
        [np.bincount(RESAMPLING_METHODS[scheme](weights, rng, n), minlength=len(weights)) for _ in range(800)]
    )
    assert (counts.sum(axis=1) == size).all()
    assert (counts[:, weights == 0] == 0).all()
    error = counts.std(axis=0, ddof=1) / math.sqrt(len(counts))
    difference = np.abs(counts.mean(axis=0) - size * weights)
    assert (difference <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("scheme", ["systematic", "residual"])
def test_whole_parts_are_certain(scheme: str, name: str) -> None:
    weights = WEIGHTS[name]
    rng = np.random.default_rng(0)
    for _ in range(100):
        counts = np.bincount(RESAMPLING_METHODS[scheme](weights, rng), minlength=len(weights))
        assert (counts >= np.floor(len(weights) * weights * (1 - 1e-12))).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("n", [1, 3, 10, 1000])
def test_no_uniform_leads_past_the_end(scheme: str, uniform: float, n: int) -> None:
    for weights in (np.full(n, 1 / n), np.append(np.full(n, 1 / n), 0.0), np.full(n, np.float32(1 / n))):
        ancestors = RESAMPLING_METHODS[scheme](weights, Fixed(uniform))
        assert ancestors.min() >= 0
        assert (weights[ancestors] > 0).all()
        assert (np.diff(ancestors) >= 0).all()


def test_weights_that_sum_to_one_only_nearly_are_taken() -> None:
    weights = np.random.default_rng(0).random(20000).astype(np.float32)
    weights /= weights.sum(dtype=np.float32)
    for scheme in SCHEMES:
        assert len(RESAMPLING_METHODS[scheme](weights, np.random.default_rng(1))) == 20000


@pytest.mark.parametrize("bad", [[0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [[1.0]]])
def test_what_is_no_weights_is_refused(bad: list[float]) -> None:
    with pytest.raises(ArgumentError, match="sum to one"):
        RESAMPLING_METHODS["stratified"](bad, np.random.default_rng(0))


def test_unknown_scheme() -> None:
    with pytest.raises(ArgumentError, match="choose one of multinomial"):
        get_resampling_fn("nonsense")


# --- without replacement


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(4))
def test_the_threshold_scheme_is_unbiased_and_never_repeats(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(8, 0.4))
    weights[rng.integers(8)] = 0
    weights /= weights.sum()
    total = np.zeros((1500, 8))
    for run in range(1500):
        kept, new = optimal_resample(weights, n, rng)
        assert len(kept) == min(n, np.count_nonzero(weights))
        assert len(set(kept.tolist())) == len(kept)
        assert (weights[kept] > 0).all()
        total[run, kept] = new
    # A light weight turns into c <= 1 / n or into nothing; seldom enough that its variance may not show.
    error = np.sqrt(np.maximum(total.var(axis=0, ddof=1), weights / n) / len(total))
    assert (np.abs(total.mean(axis=0) - weights) <= 5 * error + 1e-12).all()


def test_the_threshold_solves_its_equation() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        weights = rng.dirichlet(np.full(int(rng.integers(3, 30)), 0.3))
        n = int(rng.integers(1, len(weights)))
        _, new = optimal_resample(weights, n, rng)
        lightest = new.min()
        assert np.minimum(weights / lightest, 1).sum() == pytest.approx(n)


def test_few_possible_particles_are_all_kept() -> None:
    kept, new = optimal_resample([0.0, 0.25, 0.75, 0.0], 3, np.random.default_rng(0))
    assert kept.tolist() == [1, 2]
    assert new.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equal_weights_and_ties(n: int) -> None:
    for weights in ([1 / 6] * 6, [0.4, 0.2, 0.2, 0.2], [0.25, 0.25, 0.25, 0.125, 0.125]):
        for uniform in (0.0, 0.5, 1 - 2**-53):
            kept, new = optimal_resample(weights, n, Fixed(uniform))
            assert len(kept) == min(n, len(weights))
            assert new.sum() == pytest.approx(1)


# --- weights


def test_weights_of_the_dead() -> None:
    assert normalize(np.full(3, -np.inf)).tolist() == [0, 0, 0]
    assert effective_sample_size(np.full(3, -np.inf)) == 0
    assert log_mean(np.full(3, -np.inf)) == -math.inf


def test_very_small_weights_do_not_underflow() -> None:
    assert normalize(np.array([-1000.0, -1001.0, -1e5])) == pytest.approx([0.7310586, 0.2689414, 0])


def test_effective_sample_size() -> None:
    assert effective_sample_size(np.array([0.0, 0.0, -np.inf, 0.0])) == pytest.approx(3)
    assert effective_sample_size(np.log([0.75, 0.25])) == pytest.approx(1.6)


async def test_nothing_is_resampled_after_the_last_step() -> None:
    class Late(Model):
        async def step(self) -> None:
            self.score(-3.0 * await self.sample(Bernoulli(0.5)))
            if self.weight < -5 or await self.sample(Bernoulli(0.5)):
                self.finish()

    for options in ({}, {"max_steps": 2}):
        particles = await smc_standard(Late(), 40, ess_threshold=1, seed=1, **options)
        last = particles.record.steps[-1]
        assert particles.log_weights.tolist() == last.log_weights.tolist()
        assert particles.ess == pytest.approx(last.ess)
        assert particles.ess < 40
