"""How models are run: constraints to infill, many particles, servers, several language models, mistakes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from tables import ABC, Counted, Gated, always, random_law, table_lm

from hfppl import CachedCausalLM, Geometric, LMContext, Model, Token, Transformer, smc_standard, smc_steer
from hfppl.errors import ArgumentError, ModelError, VocabularyError


class Tokens(Model):
    """Draws tokens until the text ends, or `n` of them."""

    def __init__(self, lm: CachedCausalLM, n: int = 5, penalty: float = 0.5) -> None:
        super().__init__()
        self.context = LMContext(lm, "a")
        self.n = n
        self.penalty = penalty

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.score(-self.penalty * token.token_id)
        if token == 3 or self.context.token_count == self.n:
            self.finish()


def shown(particles: Iterable[Any]) -> list[tuple[str, float]]:
    return [(str(p), p.weight) for p in particles]


# --- infilling and forced phrases


async def test_infilling_observes_given_words_between_free_stretches_and_the_end_at_last() -> None:
    law = random_law(7)
    lm = table_lm(law)
    given = lm.tokenizer.encode("bc")

    class Infill(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.gap = 0

        async def step(self) -> None:
            self.gap = await self.sample(Geometric(0.6))
            for _ in range(self.gap):
                await self.sample(self.context.next_token())
            for token_id in given:
                await self.observe(self.context.next_token(), Token(lm, token_id, lm.vocab[token_id]))
            await self.observe(self.context.next_token(), lm.tokenizer.eos_token_id)
            self.finish()

    particles = await smc_standard(Infill(), 30, ess_threshold=0, seed=1)
    for particle in particles:
        ids = tuple(particle.context.tokens)
        assert ids[-3:] == (1, 2, 3)
        expected = math.prod(law(ids[:k])[ids[k]] for k in range(len(ids) - 3, len(ids)))
        assert particle.weight == pytest.approx(math.log(expected))


@pytest.mark.parametrize("as_token", [True, False])
async def test_a_closing_phrase_is_forced_at_no_weight_and_without_a_question(as_token: bool) -> None:
    counted = Counted(always(0.5, 0.5, 0, 0))
    lm = table_lm(counted)

    class Closing(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            await self.sample(self.context.next_token())
            for token_id in (2, 2, 3):  # impossible for the language model
                token = Token(lm, token_id, lm.vocab[token_id]) if as_token else token_id
                assert await self.intervene(self.context.next_token(), token) == token_id
            self.finish()

    particles = await smc_standard(Closing(), 4, seed=0)
    assert {str(p)[1:] for p in particles} == {"cc."}
    assert set(particles.log_weights) == {0.0}
    assert counted.asked == [(0,)]


# --- many particles


async def test_ten_thousand_particles_most_of_which_die() -> None:
    lm = table_lm(always(0.1, 0.3, 0.5, 0.1))
    steps_taken = 0

    class Mostly(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            nonlocal steps_taken
            steps_taken += 1
            token = await self.sample(self.context.next_token())
            self.condition(token == 0)
            if self.context.token_count == 2:
                self.finish()

    particles = await smc_standard(Mostly(), 10_000, ess_threshold=0, seed=0)
    survivors = 10_000 - particles.n_dead
    assert len(particles) == 10_000
    assert 50 < survivors < 150  # 1 in 100
    assert 10_000 < steps_taken < 12_000
    assert particles.log_marginal_likelihood == pytest.approx(math.log(survivors / 10_000))
    assert particles.posterior() == {"aa": pytest.approx(1)}
    assert lm.stats().forward_passes == 2


# --- a server


async def test_requests_served_at_once_give_what_each_gives_alone() -> None:
    law = random_law(9)
    alone = [shown(await smc_steer(Tokens(table_lm(law), penalty=i / 4), 3, 1, seed=i)) for i in range(6)]
    lm = table_lm(law)
    served = await asyncio.gather(*(smc_steer(Tokens(lm, penalty=i / 4), 3, 1, seed=i) for i in range(6)))
    assert [shown(particles) for particles in served] == alone


async def test_a_cancelled_request_leaves_the_others_alone() -> None:
    law = random_law(9)
    alone = shown(await smc_steer(Tokens(table_lm(law)), 3, 1, seed=1))
    gated = Gated(law)
    lm = table_lm(gated)
    doomed = asyncio.create_task(smc_steer(Tokens(lm), 3, 1, seed=0))
    kept = asyncio.create_task(smc_steer(Tokens(lm), 3, 1, seed=1))
    await gated.reached()
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    gated.gate.set()
    assert shown(await kept) == alone


# --- several language models


async def test_another_language_model_as_proposal() -> None:
    law, other_law = random_law(1), random_law(2)
    lm, other = table_lm(law), table_lm(other_law)

    class Guided(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            proposal = Transformer(other, self.context.tokens)
            await self.sample(self.context.next_token(), proposal=proposal)
            if self.context.token_count == 2:
                self.finish()

    for particle in await smc_standard(Guided(), 10, ess_threshold=0, seed=0):
        ids = tuple(particle.context.tokens)
        ratio = math.prod(law(ids[:k])[ids[k]] / other_law(ids[:k])[ids[k]] for k in (1, 2))
        assert particle.weight == pytest.approx(math.log(ratio))


async def test_changed_weights_are_seen_once_the_cache_is_cleared() -> None:
    strength = 0.0
    lm = CachedCausalLM.from_function(ABC, lambda ids: [strength, 0, 0, 0], [3])
    before = await lm.next_token_logprobs([0])
    strength = 2.0
    assert await lm.next_token_logprobs([0]) == pytest.approx(before)
    lm.clear_cache()
    after = await lm.next_token_logprobs([0])
    assert after[0] - after[1] == pytest.approx(2)
    assert (await LMContext(lm, "a").logprobs())[0] == pytest.approx(after[0])


# --- mistakes


@pytest.mark.parametrize("call", ["sample", "observe", "intervene", "call"])
async def test_a_forgotten_await_is_named_at_the_end_of_its_step(call: str) -> None:
    lm = table_lm(always(0.25, 0.25, 0.25, 0.25))

    class Forgets(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.steps = 0

        async def step(self) -> None:
            self.steps += 1
            arguments = [] if call in ("sample", "call") else [0]
            getattr(self, call)(self.context.next_token(), *arguments)

    with pytest.raises(ModelError, match=rf"self\.{call}\(\.\.\.\).*without `await`.*Forgets\.step"):
        await smc_standard(Forgets(), 2, seed=0, max_steps=3)


async def test_calls_are_coroutines_that_may_go_into_tasks() -> None:
    lm = table_lm(always(0.25, 0.25, 0.25, 0.25))

    class Tasks(Model):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = LMContext(lm, "a"), LMContext(lm, "b")

        async def step(self) -> None:
            first = self.sample(self.left.next_token())
            assert asyncio.iscoroutine(first)
            task = asyncio.create_task(first)
            second = await asyncio.wait_for(self.sample(self.right.next_token()), None)
            assert (await task, second) == (self.left.tokens[-1], self.right.tokens[-1])
            self.finish()

    particles = await smc_standard(Tasks(), 3, seed=0)
    assert particles.n_unfinished == 0


async def test_a_model_that_never_finishes_is_stopped_by_max_steps() -> None:
    class Endless(Model):
        async def step(self) -> None:
            self.score(-1.0)

    particles = await smc_standard(Endless(), 3, seed=0, max_steps=4)
    assert particles.n_unfinished == 3
    assert list(particles.log_weights) == [-4.0] * 3
    assert particles.posterior() == {}
    assert particles.log_marginal_likelihood == -math.inf


async def test_tokens_and_masks_of_another_vocabulary_are_refused() -> None:
    lm, other = table_lm(always(1, 0, 0, 0)), table_lm(always(1, 0), ("x", "y"), ())
    context = LMContext(lm, "a")
    with pytest.raises(VocabularyError, match="another vocabulary"):
        await context.next_token().log_prob(Token(other, 0))
    with pytest.raises(VocabularyError, match="another vocabulary"):
        context.mask_dist(other.masks.ALL_TOKENS)
    same = table_lm(always(0, 1, 0, 0))
    assert await context.next_token().log_prob(Token(same, 0)) == 0.0


@pytest.mark.parametrize("ids", [{4}, {0, -1}, [1.5], "ab", b"ab"])
def test_a_mask_of_what_are_no_ids_is_refused(ids: Any) -> None:
    lm = table_lm(always(1, 0, 0, 0))
    with pytest.raises(VocabularyError):
        LMContext(lm, "a").mask_dist(ids)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", True, None])
async def test_a_count_of_particles_that_is_none_is_refused(n: Any) -> None:
    model = Tokens(table_lm(always(1, 0, 0, 0)))
    with pytest.raises(ArgumentError, match="n_particles"):
        await smc_standard(model, n)
    with pytest.raises(ArgumentError, match="n_particles"):
        await smc_steer(model, n, 2)
    with pytest.raises(ArgumentError, match="n_beam"):
        await smc_steer(model, 2, n)


async def test_text_where_token_ids_belong_is_refused() -> None:
    lm = table_lm(always(1, 0, 0, 0))
    with pytest.raises(VocabularyError, match="token ids belong here"):
        await lm.next_token_logprobs("ab")
    with pytest.raises(VocabularyError, match="token ids belong here"):
        lm.next_token_logprobs_unbatched("ab")
    with pytest.raises(VocabularyError, match="token ids belong here"):
        lm.cache_kv("ab")
    with pytest.raises(VocabularyError, match="a token or a token id"):
        await LMContext(lm, "a").next_token().log_prob("a")


async def test_bad_arguments_fail_before_any_question() -> None:
    counted = Counted(always(1, 0, 0, 0))
    model = Tokens(table_lm(counted))
    for keywords in (
        {"ess_threshold": 1.5},
        {"ess_threshold": math.nan},
        {"resampling_method": "bootstrap"},
        {"seed": -1},
        {"seed": 0.5},
        {"max_steps": 0},
    ):
        with pytest.raises(ArgumentError):
            await smc_standard(model, 3, **keywords)
    assert counted.asked == []


def test_numpy_integers_do_as_ints() -> None:
    lm = table_lm(always(0, 1, 0, 0))
    particles = asyncio.run(smc_standard(Tokens(lm, np.int64(2)), np.int64(2), seed=np.int64(1)))
    assert [str(p) for p in particles] == ["bb", "bb"]


@pytest.mark.parametrize(
    "bad",
    [
        {"ess_threshold": "0.5"},
        {"ess_threshold": None},
        {"resampling_method": []},
        {"on_step": 5},
        {"move": 3},
    ],
    ids=str,
)
async def test_arguments_of_the_wrong_kind(bad: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        await smc_standard(Model(), 2, **bad)


async def test_answers_and_settings_of_the_wrong_kind() -> None:
    lm = table_lm(random_law(1))
    with pytest.raises(ArgumentError, match="temperature"):
        LMContext(lm, "a", temp=None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="eos_token_ids"):
        lm.eos_token_ids = 0  # type: ignore[assignment]
    with pytest.raises(ArgumentError, match="True or False"):
        await LMContext(lm, "a").mask_dist([0]).log_prob("no")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="as a list"):
        LMContext(lm, {"role": "user", "content": "a"})
