"""What must come out right in the corners: impossible events, faint weights, dead populations, odd steps."""

from __future__ import annotations

import asyncio
import gc
import math
import warnings
from typing import Any

import numpy as np
import pytest
from tables import ABC, always, random_law, table_lm

from hfppl import (
    Bernoulli,
    CachedCausalLM,
    LMContext,
    LogCategorical,
    Model,
    Token,
    TokenCategorical,
    logsumexp,
    smc_standard,
    smc_steer,
    softmax,
)
from hfppl.errors import ArgumentError, NumericalError, VocabularyError
from hfppl.inference.smc_steer import thin_out
from hfppl.inference.weights import effective_sample_size, log_mean, normalize

HALF = always(0.5, 0.5, 0, 0)


def steer(model: Any, n: int, **keywords: Any) -> Any:
    return smc_steer(model, n, 2, **keywords)


DRIVERS = pytest.mark.parametrize("driver", [smc_standard, steer])


# --- impossible events


async def test_a_mask_that_nothing_passes_kills_one_particle_and_disturbs_nobody_else() -> None:
    lm = table_lm(HALF)
    number = 0

    class One(Model):
        def __init__(self, empty: Any) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.empty = empty

        async def start(self) -> None:
            nonlocal number
            number += 1
            self.number = number

        async def step(self) -> None:
            if self.number == 2:
                await self.observe(self.context.mask_dist(self.empty), True)
                assert (self.context.tokens, len(self.context.model_mask)) == ([0], 4)
            await self.sample(self.context.next_token())
            self.finish()

    for empty in (set(), {2, 3}):
        number = 0
        particles = await smc_standard(One(empty), 3, ess_threshold=0, seed=0)
        assert list(particles.log_weights) == [0.0, -math.inf, 0.0]
        assert particles.log_marginal_likelihood == pytest.approx(math.log(2 / 3))


@DRIVERS
@pytest.mark.parametrize("temp", [0, 1])
@pytest.mark.parametrize("event", ["token", "mask"])
async def test_a_row_in_which_nothing_is_possible_kills_and_draws_no_token_zero(
    driver: Any, temp: float, event: str
) -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [-math.inf] * 4 if ids[-1] == 1 else [0.0] * 4, [3])

    class Hits(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "b", temp)

        async def step(self) -> None:
            if event == "mask":
                await self.sample(self.context.mask_dist({0, 1}))
            else:
                await self.sample(self.context.next_token())
            self.reached = True
            self.finish()

    particles = await driver(Hits(), 3, seed=0)
    assert all(p.reached for p in particles)
    assert particles.n_dead == len(particles) == 3
    assert particles.log_marginal_likelihood == -math.inf


async def test_a_forced_token_outside_the_mask_is_appended_and_the_next_is_free() -> None:
    lm = table_lm(HALF)

    class Forced(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a", temp=0)

        async def step(self) -> None:
            await self.observe(self.context.mask_dist({0}), True)
            await self.intervene(self.context.next_token(), 2)
            assert len(self.context.model_mask) == 4
            await self.sample(self.context.next_token())
            self.finish()

    particles = await smc_standard(Forced(), 2, seed=0)
    assert [(str(p), p.weight) for p in particles] == [("ca", 0.0)] * 2


@DRIVERS
@pytest.mark.parametrize("fatal_step", [1, 3])
async def test_when_all_die_the_run_ends_without_a_number_that_is_none(driver: Any, fatal_step: int) -> None:
    class Doomed(Model):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        async def step(self) -> None:
            self.n += 1
            self.score(math.log(0.1 + 0.5 * await self.sample(Bernoulli(0.5))))
            self.condition(self.n < fatal_step)
            if self.n == 5:
                self.finish()

    particles = await driver(Doomed(), 4, seed=0)
    assert len(particles) == 4
    assert particles.n_dead == 4
    assert particles.n_unfinished == 0
    assert particles.log_marginal_likelihood == -math.inf
    assert (particles.ess, particles.posterior()) == (0.0, {})
    assert list(particles.normalized_weights) == [0.0] * 4
    assert len(particles.record.steps) == fatal_step


# --- log space


def test_sums_of_exponentials_at_the_infinities() -> None:
    inf = math.inf
    for values, expected in (([-inf, -inf], -inf), ([inf, 0], inf), ([-inf], -inf), ([], -inf)):
        assert logsumexp(values) == expected
    assert math.isnan(logsumexp([math.nan, 0]))
    assert list(softmax([-inf, -inf])) == [0.0, 0.0]
    with pytest.raises(NumericalError):
        softmax([math.nan, 0])
    with pytest.raises(NumericalError):
        softmax([inf, 0])


def test_very_small_weights_keep_their_proportions() -> None:
    assert normalize(np.array([-1000.0, -1001.0, -1e5])) == pytest.approx([0.7310586, 0.2689414, 0])
    assert log_mean(np.array([-1000.0, -1000.0])) == pytest.approx(-1000)
    assert effective_sample_size(np.array([-1e5, -1e5, -math.inf])) == pytest.approx(2)


async def test_resampled_particles_weigh_the_mean_and_carry_on_what_their_parents_drew() -> None:
    class Copies(Model):
        def __init__(self) -> None:
            super().__init__()
            self.values: list[bool] = []

        async def step(self) -> None:
            if not self.values:
                self.values.append(await self.sample(Bernoulli(0.5)))
                self.score(math.log(3) if self.values[0] else 0.0)
            else:
                assert self.weight == pytest.approx(mean)
                self.values.append(self.values[0])
                self.finish()

    mean = 0.0

    def remember(step: Any) -> None:
        nonlocal mean
        mean = step.log_mean_weight

    particles = await smc_standard(Copies(), 20, ess_threshold=1, seed=0, on_step=remember)
    assert particles.log_weights == pytest.approx(np.full(20, particles.record.steps[0].log_mean_weight))
    assert all(p.values[0] == p.values[1] for p in particles)
    for slot, ancestor in enumerate(particles.record.steps[1].ancestors):
        parent_drew_true = particles.record.steps[0].log_weights[ancestor] > 0
        assert particles[slot].values[0] == parent_drew_true


@pytest.mark.parametrize("n", [10, 161, 500])
async def test_equal_weights_are_never_resampled(n: int) -> None:
    class Equal(Model):
        async def step(self) -> None:
            self.score(-1.3)
            self.finish()

    particles = await smc_standard(Equal(), n, ess_threshold=1, resampling_method="multinomial", seed=0)
    assert set(particles.log_weights) == {-1.3}
    assert len({id(p) for p in particles}) == n


# --- thinning out


def test_thinning_out_keeps_exactly_as_many_as_asked_for_however_faint() -> None:
    rng = np.random.default_rng(0)
    inf = math.inf
    for log_weights in (
        [0.0, -800.0],
        [0.0, -800.0, -801.0, -inf],
        [-inf, -inf, -inf],
        [-inf, -2000.0, -inf],
        [0.0, -800.0, -1700.0, -2600.0],
        [0.0] * 5,
    ):
        for n in range(1, len(log_weights) + 1):
            kept, new = thin_out(np.array(log_weights), n, rng)
            assert len(kept) == len(new) == len(set(kept.tolist())) == n
            n_live = sum(weight > -inf for weight in log_weights)
            assert np.count_nonzero(new > -inf) == min(n, n_live)
            assert ((new > -inf) == (np.array(log_weights)[kept] > -inf)).all()
            assert logsumexp(new) == pytest.approx(logsumexp(log_weights))


def test_thinning_out_leaves_every_weight_as_it_was_on_average() -> None:
    log_weights = np.log([0.02, 0.3, 0.05, 1.0, 0.1, 0.08])
    log_weights[2] = -math.inf
    rng = np.random.default_rng(1)
    sums = np.zeros((1000, 6))
    for row in sums:
        kept, new = thin_out(log_weights, 3, rng)
        row[kept] = np.exp(new)
    error = sums.std(axis=0, ddof=1) / math.sqrt(len(sums))
    assert (np.abs(sums.mean(axis=0) - np.exp(log_weights)) <= 4 * error + 1e-12).all()


async def test_a_particle_too_faint_to_see_keeps_its_place() -> None:
    class Faint(Model):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        async def step(self) -> None:
            self.n += 1
            if self.n == 1:
                self.faint = await self.sample(Bernoulli(0.8))
                self.score(-800.0 if self.faint else 0.0)
            else:
                self.condition(self.faint)  # in the end only the faint ones were right
                self.finish()

    particles = await smc_steer(Faint(), 6, 2, seed=1)
    assert len(particles) == 6
    assert -805 < particles.log_marginal_likelihood < -798
    assert particles.best().faint


# --- evidence


async def z_estimates(driver: Any, make: Any, n: int, runs: int, **keywords: Any) -> np.ndarray:
    results = [await driver(make(), n, seed=seed, **keywords) for seed in range(runs)]
    assert all(len(particles) == n for particles in results)
    return np.exp([particles.log_marginal_likelihood for particles in results])


def assert_unbiased(estimates: np.ndarray, z: float) -> None:
    error = estimates.std(ddof=1) / math.sqrt(len(estimates))
    assert 0 < error < 0.08 * z, "too few runs to see a bias"
    assert abs(estimates.mean() - z) < 4 * error


class HalfEndHalfDie(Model):
    """Z = 1/2: half of the texts end at once, the others are impossible one step later."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    async def step(self) -> None:
        self.n += 1
        self.condition(self.n == 1)
        if await self.sample(Bernoulli(0.5)):
            self.finish()


class OddSteps(Model):
    """Z = 0.75: words of one to three letters in one step, and a price for every letter that is no word."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = 0

    async def step(self) -> None:
        for _ in range(1 + await self.sample(LogCategorical([0.0, 0.0, 0.0]))):
            self.letters += 1
            if self.letters == 4:
                self.score(math.log(0.5) if await self.sample(Bernoulli(0.5)) else 0.0)
                self.finish()
                return


@DRIVERS
@pytest.mark.parametrize(("make", "z"), [(HalfEndHalfDie, 0.5), (OddSteps, 0.75)])
async def test_the_evidence_is_right_when_particles_end_die_or_stride_apart(
    driver: Any, make: Any, z: float
) -> None:
    assert_unbiased(await z_estimates(driver, make, 6, 120), z)


@DRIVERS
async def test_the_last_observation_is_in_the_weights(driver: Any) -> None:
    class Once(Model):
        async def step(self) -> None:
            self.x = await self.sample(Bernoulli(0.5))
            await self.observe(Bernoulli(0.8 if self.x else 0.2), True)
            self.finish()

    particles = await driver(Once(), 400, seed=0)
    posterior = particles.posterior(lambda p: p.x)
    assert abs(posterior[True] - 0.8) < 4 * math.sqrt(0.16 / 400)
    assert abs(particles.log_marginal_likelihood - math.log(0.5)) < 0.15


async def test_a_proposal_that_misses_a_value_loses_its_mass() -> None:
    lm = table_lm(always(0.5, 0.3, 0.2, 0))

    class Narrow(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            narrow = TokenCategorical(lm, np.log([5.0, 3.0, 1e-300, 1e-300]))
            await self.sample(self.context.next_token(), proposal=narrow)
            self.finish()

    particles = await smc_standard(Narrow(), 5, ess_threshold=0, seed=0)
    assert particles.log_weights == pytest.approx(np.full(5, math.log(0.8)))


# --- several vocabularies, sets as masks, prompts


async def test_language_models_of_different_vocabularies_work_in_one_model() -> None:
    lm, other = table_lm(HALF), table_lm(always(0, 0.5, 0.5), ("x", "y", "z"), ())

    class Both(Model):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = LMContext(lm, "a"), LMContext(other, "x")

        async def step(self) -> None:
            token = await self.sample(self.right.next_token())
            await self.sample(self.left.next_token())
            with pytest.raises(VocabularyError, match="another vocabulary"):
                await self.observe(self.left.next_token(), token)
            self.finish()

    for particle in await smc_standard(Both(), 4, seed=0):
        assert str(particle.left) in {"a", "b"}
        assert str(particle.right) in {"y", "z"}
        assert particle.weight == 0


async def test_plain_sets_of_ids_and_tokens_serve_as_masks_and_are_read_when_handed_over() -> None:
    lm = table_lm(always(0.4, 0.3, 0.2, 0.1))
    context = LMContext(lm, "a")
    ids = {0, 1}
    first = context.mask_dist(ids)
    ids.add(2)
    second = context.mask_dist(ids)  # the same object, with another content
    assert await second.log_prob(True) == pytest.approx(math.log(0.9))
    assert await first.log_prob(True) == pytest.approx(math.log(0.7 / 0.9))
    assert context.model_mask == {0, 1}
    for same in ([Token(lm, 1), 0], (i for i in (0, 1)), np.array([0, 1]), frozenset((0, 1))):
        assert lm.token_mask(same) == {0, 1}


def test_messages_without_a_chat_template_and_texts_that_no_token_begins_are_refused() -> None:
    lm = table_lm(HALF)
    with pytest.raises(ArgumentError, match="chat template"):
        LMContext(lm, [{"role": "user", "content": "a"}])
    with pytest.raises(VocabularyError, match="xyz"):
        LMContext(lm, "abxyz")
    assert LMContext(lm, "").tokens == []


async def test_two_ids_with_the_same_bytes_are_two_tokens() -> None:
    lm = table_lm(always(0.5, 0.2, 0.3), ("x", b" ", b" "), ())
    context = LMContext(lm, "x")
    assert await LMContext(lm, "x").mask_dist(lm.masks.bytes({b" "})).log_prob(True) == pytest.approx(
        math.log(0.5)
    )
    assert await context.mask_dist({1}).log_prob(True) == pytest.approx(math.log(0.2))


# --- what is left behind


async def test_nothing_is_left_unretrieved_when_several_particles_fail() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    lm = table_lm(random_law(0))

    class AllFail(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            await self.sample(self.context.next_token())
            self.sample(self.context.next_token())  # and forgets
            raise ZeroDivisionError

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError):
            await smc_standard(AllFail(), 5, seed=0)
        gc.collect()
        await asyncio.sleep(0)
    assert complaints == []
    assert [str(w.message) for w in warned] == []


async def test_what_was_written_is_at_hand_when_a_run_is_stopped_short() -> None:
    lm = table_lm(always(0, 1, 0, 0))

    class Long(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            await self.sample(self.context.next_token())

    particles = await smc_standard(Long(), 2, seed=0, max_steps=3)
    assert [str(p) for p in particles] == ["bbb"] * 2
    assert particles.n_unfinished == 2
