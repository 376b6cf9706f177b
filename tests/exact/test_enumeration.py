"""Enumeration against answers worked out by hand."""

import math

import pytest

from hfppl import (
    Bernoulli,
    Geometric,
    LMContext,
    LogCategorical,
    Model,
    enumerate_exact,
    importance_sampling,
    rng,
)
from hfppl.errors import ArgumentError, ModelError

from .reference import LM, REFERENCES, Free


@pytest.mark.parametrize("name", REFERENCES)
async def test_every_path_has_its_exact_weight(name: str) -> None:
    reference = REFERENCES[name]
    particles = await enumerate_exact(reference.make())
    assert math.exp(particles.log_marginal_likelihood) == pytest.approx(reference.z)
    assert particles.log_z_bounds[0] == particles.log_z_bounds[1] == particles.log_marginal_likelihood
    posterior = particles.posterior(reference.key)
    assert posterior.keys() == reference.exact.keys()
    for key, mass in reference.exact.items():
        assert posterior[key] == pytest.approx(mass / reference.z)


class Coins(Model):
    """Three coins; at most one may be heads."""

    def __init__(self, proposal: float | None = None) -> None:
        super().__init__()
        self.heads = 0
        self.tosses = 0
        self.proposal = proposal

    async def step(self) -> None:
        self.tosses += 1
        q = None if self.proposal is None else Bernoulli(self.proposal)
        self.heads += await self.sample(Bernoulli(0.5), proposal=q)
        self.condition(self.heads < 2)
        if self.tosses == 3:
            self.finish()


async def test_what_a_proposal_cannot_draw_is_reported() -> None:
    assert (await enumerate_exact(Coins(proposal=0.3))).missed_by_proposals == 0
    narrow = await enumerate_exact(Coins(proposal=0.0))
    assert math.exp(narrow.log_marginal_likelihood) == pytest.approx(0.5)
    assert narrow.missed_by_proposals == pytest.approx(0.75)


async def test_bounds_when_paths_are_left_out() -> None:
    exact = REFERENCES["submodels"].z
    for options in ({"max_paths": 40}, {"min_prob": 0.01}):
        particles = await enumerate_exact(REFERENCES["submodels"].make(), **options)
        low, high = map(math.exp, particles.log_z_bounds)
        assert 0 < low < exact < high <= 1 + 1e-9


async def test_the_upper_bound_is_infinite_where_scores_may_gain() -> None:
    class Gaining(Free):
        async def step(self) -> None:
            await super().step()
            self.score(1.0)

    particles = await enumerate_exact(Gaining(), max_paths=10)
    assert particles.log_z_bounds[1] == math.inf


async def test_unfinished_paths_are_marked() -> None:
    particles = await enumerate_exact(Free(), max_steps=1)
    assert particles.n_unfinished == 4
    assert list(particles.posterior()) == ["."]
    assert math.exp(particles.log_z_bounds[1]) == pytest.approx(1)


async def test_draws_that_cannot_be_listed_are_named() -> None:
    class Endless(Model):
        async def step(self) -> None:
            await self.sample(Geometric(0.5))

    class Hidden(Model):
        async def step(self) -> None:
            if rng().random() < 0.5:
                self.finish()

    with pytest.raises(ModelError, match="Geometric"):
        await enumerate_exact(Endless())
    with pytest.raises(ModelError, match="rng"):
        await enumerate_exact(Hidden())


async def test_a_dead_end_has_no_weight() -> None:
    class DeadEnd(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(LM, "")

        async def step(self) -> None:
            if await self.sample(Bernoulli(0.25)):
                await self.observe(self.context.mask_dist([]), True)
            await self.sample(self.context.next_token())
            await self.sample(LogCategorical([-math.inf]))
            self.finish()

    particles = await enumerate_exact(DeadEnd())
    assert len(particles) == 0
    assert particles.log_marginal_likelihood == -math.inf


@pytest.mark.parametrize("bad", [{"max_paths": 0}, {"min_prob": 1.0}, {"min_prob": -1}, {"max_steps": 0}])
async def test_bad_arguments(bad: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        await enumerate_exact(Coins(), **bad)


async def test_importance_sampling_never_resamples() -> None:
    particles = await importance_sampling(Coins(), 50, seed=0)
    assert len(particles) == 50
    assert all(step.ancestors == tuple(range(50)) for step in particles.record.steps)
    assert set(particles.log_weights) == {0.0, -math.inf}


# Of the two values of a choice, the first is followed at once: the text that ends by it is counted still.
@pytest.mark.parametrize(("goes_on", "left_out"), [(True, 2**-10), (False, 2**-9)])
async def test_a_model_without_end_is_followed_down_to_min_prob(goes_on: bool, left_out: float) -> None:
    class Forever(Model):
        async def step(self) -> None:
            if await self.sample(Bernoulli(0.5)) != goes_on:
                self.finish()

    particles = await enumerate_exact(Forever(), min_prob=1e-3, max_steps=100)
    lower, upper = particles.log_z_bounds
    assert particles.n_unfinished == 0, "it ended by itself"
    assert math.exp(lower) == pytest.approx(1 - left_out)
    assert math.exp(upper) == pytest.approx(1.0)
