"""Models that run copies of themselves: looking ahead, and moves that make candidates."""

import asyncio
import copy
import math

import numpy as np
import pytest

from hfppl import CachedCausalLM, LMContext, LogCategorical, Model, enumerate_exact, smc_standard
from hfppl.errors import ModelError

P = [0.7, 0.1, 0.1, 0.1]
LM = CachedCausalLM.from_function(["a", "b", "c", "."], lambda ids: np.log(P), [3])


class LooksAhead(Model):
    """Runs a copy that dies, at once or by drawing what it may not, and goes on undisturbed."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.context = LMContext(LM, "a")
        self.how = how
        self.copy_drew = ""

    async def step(self) -> None:
        other = copy.deepcopy(self)
        if self.how == "condition":
            other.condition(False)
        elif self.how == "empty mask":
            await other.observe(other.context.mask_dist([]), True)
        else:
            await other.intervene(other.context.mask_dist([]), True)
        for _ in range(3):
            self.copy_drew += str(await other.sample(other.context.next_token()))
        assert other.weight == -math.inf
        await self.observe(self.context.mask_dist([0, 1]), True)
        await self.sample(self.context.next_token())
        self.finish()


@pytest.mark.parametrize("how", ["condition", "empty mask", "intervene"])
async def test_the_death_of_a_copy_is_not_its_originals(how: str) -> None:
    particles = await smc_standard(LooksAhead(how), 2000, seed=1)
    assert particles.log_weights == pytest.approx(math.log(0.8))
    share = particles.posterior()["a"]
    assert abs(share - 0.875) < 5 * math.sqrt(0.875 * 0.125 / 2000)


async def test_a_dead_copy_asks_the_language_model_nothing() -> None:
    asked: list[list[int]] = []

    def law(ids: list[int]) -> np.ndarray:
        asked.append(ids)
        return np.log(P)

    class DeadCopy(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(CachedCausalLM.from_function(["a", "b", "c", "."], law, [3]), "a")

        async def step(self) -> None:
            other = copy.deepcopy(self)
            other.condition(False)
            await other.sample(other.context.next_token())
            self.finish()

    await smc_standard(DeadCopy(), 3, seed=0)
    assert asked == []


async def test_a_copy_that_goes_on_after_its_death_is_an_error() -> None:
    class Endless(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(LM, "a")

        async def step(self) -> None:
            other = copy.deepcopy(self)
            other.condition(False)
            while True:
                await other.sample(other.context.next_token())

    with pytest.raises(ModelError, match="copy of a particle"):
        await smc_standard(Endless(), 1, seed=0)


async def test_copies_and_concurrent_draws_are_not_enumerated() -> None:
    class Copies(Model):
        async def step(self) -> None:
            await copy.deepcopy(self).sample(LogCategorical([0.0, 0.0]))
            self.finish()

    class Concurrent(Model):
        def __init__(self) -> None:
            super().__init__()
            lm = CachedCausalLM.from_function(["a", "b", "c", "."], lambda ids: np.log(P), [3])
            self.context = LMContext(lm, "a")  # whose first row is not known yet, and has to be waited for

        async def step(self) -> None:
            await asyncio.gather(
                self.sample(self.context.next_token()), self.sample(LogCategorical([0.0, 0.0]))
            )
            self.finish()

    with pytest.raises(ModelError, match="cannot be enumerated"):
        await enumerate_exact(Copies())
    with pytest.raises(ModelError, match="one after the other"):
        await enumerate_exact(Concurrent())


class Scored(Model):
    """Two tokens; the first is scored, so that particles are resampled after it."""

    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "a")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.score(-float(token.token_id))
        if self.context.token_count == 2:
            self.finish()


@pytest.mark.parametrize("how", ["score", "twist", "die", "finish"])
async def test_a_moves_own_scores_leave_no_trace(how: str) -> None:
    moved: list[int] = []

    async def move(particle: Scored) -> Scored:
        moved.append(1)
        if how == "score":
            particle.score(-5.0)
        elif how == "twist":
            particle.twist(2.0)
        elif how == "die":
            particle.condition(False)
        else:
            particle.finish()
        return particle

    async def stay(particle: Scored) -> Scored:
        return particle

    plain = await smc_standard(Scored(), 30, 1.0, seed=3, move=stay)
    after = await smc_standard(Scored(), 30, 1.0, seed=3, move=move)
    assert moved
    assert after.log_marginal_likelihood == plain.log_marginal_likelihood
    assert [str(p) for p in after] == [str(p) for p in plain]
