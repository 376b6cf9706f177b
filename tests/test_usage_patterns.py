"""How models are written: every shape of step that scripts and notebooks use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tables import ABC, always, random_law, table_lm

from hfppl import (
    CachedCausalLM,
    Geometric,
    LMContext,
    Model,
    StatefulLM,
    Token,
    TokenSequence,
    sample_word,
    smc_standard,
    smc_steer,
    submodel,
)

WORDS = (" a", " the", " cat", "s", "'s", " sat", ",", ".", "\n", "<end>")


def words_lm(seed: int = 0) -> CachedCausalLM:
    return table_lm(random_law(seed, len(WORDS)), WORDS, [len(WORDS) - 1])


# --- a script with one language model for all


def test_a_script_with_a_batch_size_a_cached_prompt_and_sets_of_ids_as_masks() -> None:
    lm = words_lm()
    lm.batch_size = 40
    eos = lm.tokenizer.eos_token_id
    short = {
        limit: {
            i
            for i, v in enumerate(lm.vocab)
            if i != eos and "\n" not in v and len(v.strip()) <= limit and (v[0] == " " or v[0] in "s',.")
        }
        for limit in range(1, 5)
    }
    prompt = " the cat"
    lm.cache_kv(lm.tokenizer.encode(prompt))

    class ShortWords(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, prompt)
            self.n = 0

        async def step(self) -> None:
            await self.observe(self.context.mask_dist(short[3]), True)
            token = await self.sample(self.context.next_token())
            assert len(str(token).strip()) <= 3
            self.n += 1
            if self.n == 4:
                self.finish()

    async def main() -> Any:
        return await smc_standard(ShortWords(), 30, seed=1)

    first = asyncio.run(main())
    again = asyncio.run(main())  # the language model outlives the event loop
    assert [str(p) for p in first] == [str(p) for p in again]
    assert max(len(w.strip()) for p in first for w in [lm.vocab[i] for i in p.context.tokens[2:]]) <= 3
    assert -8 < first.log_marginal_likelihood < 0


async def test_a_notebook_awaits_at_the_top_level() -> None:
    lm = words_lm()

    class OneToken(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, " a")

        async def step(self) -> None:
            await self.sample(self.context.next_token())
            self.finish()

    particles = await smc_standard(OneToken(), 5, seed=0)
    assert sum(particles.posterior().values()) == pytest.approx(1)


# --- two contexts, and distributions that read them late


async def test_a_second_context_as_the_proposal_advances_with_the_first_and_corrects_the_weight() -> None:
    law = random_law(3)
    lm = table_lm(law)
    allowed = {0, 2}

    class Masked(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.q = LMContext(lm, "a")
            self.n = 0

        async def step(self) -> None:
            await self.intervene(self.q.mask_dist(allowed), True)
            token = await self.sample(self.context.next_token(), proposal=self.q.next_token())
            self.condition(token in allowed)
            assert self.context.tokens == self.q.tokens
            self.n += 1
            if self.n == 3:
                self.finish()

    particles = await smc_standard(Masked(), 8, ess_threshold=0, seed=5)
    for particle in particles:
        ids = particle.context.tokens
        masses = [sum(law(tuple(ids[:k]))[i] for i in allowed) for k in range(1, 4)]
        assert set(ids[1:]) <= allowed
        assert particle.weight == pytest.approx(math.log(math.prod(masses)))


async def test_a_distribution_made_first_obeys_the_masks_observed_before_it_is_sampled() -> None:
    lm = table_lm(always(0.4, 0.3, 0.2, 0.1))

    class Late(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            next_dist = self.context.next_token()
            await self.observe(self.context.mask_dist({1, 2}), True)
            assert self.weight == pytest.approx(math.log(0.5))
            await self.observe(self.context.mask_dist({2, 3}), True)
            assert await self.sample(next_dist) == 2
            assert await self.observe(next_dist, 0) == 0  # used again, at the next token
            assert self.weight == pytest.approx(math.log(0.2 * 0.4))
            assert await self.intervene(next_dist, 3) == 3
            self.finish()

    particles = await smc_standard(Late(), 3, seed=0)
    assert [str(p) for p in particles] == ["ca."] * 3


async def test_a_distribution_kept_in_an_attribute_belongs_to_its_own_copy() -> None:
    lm = table_lm(always(0.5, 0.5, 0, 0))

    class Kept(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.next = self.context.next_token()

        async def step(self) -> None:
            await self.sample(self.next)
            self.score(float(self.context.tokens[-1]))
            if self.context.token_count == 4:
                self.finish()

    model = Kept()
    particles = await smc_standard(model, 16, ess_threshold=1, seed=0)
    assert {p.context.token_count for p in particles} == {4}
    assert model.context.token_count == 0


# --- tokens in a user's hands


async def test_tokens_compare_count_and_add_up_as_scripts_expect() -> None:
    lm = table_lm(always(0, 0, 0, 1), ABC)
    seen: list[Any] = []

    class Collect(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.text = ""
            self.sequence = TokenSequence(lm, [])

        async def step(self) -> None:
            token = await self.sample(self.context.next_token())
            assert token == lm.tokenizer.eos_token_id
            assert token.token_id in {3}
            assert str(token) in [".", "!", "?"]
            assert lm.vocab[token.token_id] == "."
            assert int(token) == 3
            assert token in {3: "end"}
            assert {token, 3} == {3}
            assert token != "."
            self.text += token
            self.sequence += token
            seen.append(token + token)
            self.finish()

    (particle,) = await smc_standard(Collect(), 1, seed=0)
    assert particle.text == "."
    assert type(particle.text) is str
    assert particle.sequence.seq == [3]
    assert isinstance(seen[0], TokenSequence)
    assert str(seen[0]) == ".."


async def test_text_grows_by_what_is_sampled_whatever_it_is_made_of() -> None:
    lm = table_lm(always(0, 1, 0, 0))
    context = LMContext(lm, "a")
    model = Model()
    text = "x"
    text += await model.sample(context.next_token())
    token = await model.sample(context.next_token())
    token += await model.sample(context.next_token())
    assert text == "xb"
    assert str(token) == "bb"


async def test_the_text_of_a_context_is_the_continuation_and_of_its_sequence_everything() -> None:
    lm = table_lm(always(0, 1, 0, 0))
    context = LMContext(lm, "ac")
    before = len(str(context.s))
    for _ in range(3):
        await context.next_token().sample()
    assert str(context) == "bbb"
    assert str(context.s) == "acbbb"
    assert str(context.s)[before:] == "bbb"


def test_the_historical_names() -> None:
    lm = table_lm(always(0.25, 0.25, 0.25, 0.25))
    assert StatefulLM is LMContext
    assert StatefulLM(lm, "a", 0.7).temp == 0.7
    assert lm.model([0]) == pytest.approx(np.log([0.25] * 4))


# --- steps that end in the middle, twists, generators, submodels


@pytest.mark.parametrize("how", ["condition", "observe"])
async def test_dying_in_the_middle_of_a_step_is_harmless_and_so_is_finishing_twice(how: str) -> None:
    lm = table_lm(always(0.5, 0.5, 0, 0))

    class Dies(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.reached_the_end = False

        async def step(self) -> None:
            token = await self.sample(self.context.next_token())
            if how == "condition":
                self.condition(token == 0)
            elif token == 1:
                await self.observe(self.context.next_token(), 2)
            await self.sample(self.context.next_token())
            self.finish()
            self.finish()
            self.reached_the_end = True

    particles = await smc_standard(Dies(), 12, ess_threshold=0, seed=0)
    assert 0 < particles.n_dead < 12
    assert all(p.reached_the_end and p.finished for p in particles)
    assert {p.weight for p in particles} == {0.0, -math.inf}


async def test_twists_of_numpy_floats_leave_no_trace_in_the_weights() -> None:
    lm = table_lm(always(0.5, 0.4, 0, 0.1))

    def classifier(text: str) -> np.float32:
        return np.float32(0.3 * text.count("a") - 0.7)

    class Twisted(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            token = await self.sample(self.context.next_token())
            self.twist(classifier(str(self.context)))
            if token == 3 or self.context.token_count == 6:
                self.finish()

    particles = await smc_standard(Twisted(), 10, ess_threshold=0, seed=2)
    assert particles.log_weights == pytest.approx(np.zeros(10), abs=1e-12)
    assert any(np.abs(step.log_weights).max() > 0.1 for step in particles.record.steps)


@submodel
async def pair(self: Any, context: LMContext) -> str:
    return str(await self.sample(context.next_token())) + str(await self.sample(context.next_token()))


@submodel
async def two_pairs(self: Any, context: LMContext) -> list[str]:
    return [await self.call(pair(context)), await self.call(pair(context))]


async def test_an_async_generator_and_nested_submodels_inside_a_step_of_any_length() -> None:
    lm = table_lm(always(0.4, 0.3, 0.2, 0.1))

    class Sentences(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")
            self.pairs: list[str] = []

        async def sentence(self) -> AsyncIterator[Token]:
            for _ in range(await self.sample(Geometric(0.5))):
                yield await self.sample(self.context.next_token())

        async def step(self) -> None:
            async for token in self.sentence():
                self.score(-0.1 * token.token_id)
            self.pairs += await self.call(two_pairs(self.context))
            if len(self.pairs) >= 4:
                self.finish()

    particles = await smc_standard(Sentences(), 20, ess_threshold=0.9, seed=0)
    assert len({p.context.token_count for p in particles}) > 3
    assert all(p.pairs[-1] == str(p)[-2:] and p.pairs[-2] == str(p)[-4:-2] for p in particles)


async def test_words_of_several_tokens_and_a_question_whether_the_word_goes_on() -> None:
    lm = words_lm(4)
    goes_on = lm.masks.CONTINUES_CURRENT_WORD

    class Line(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, " a", temp=0.7)
            self.pieces: list[str] = []

        async def step(self) -> None:
            word, mark = await self.call(sample_word(self.context))
            assert not await self.sample(self.context.mask_dist(goes_on)) or mark
            self.pieces += [word, mark]
            if len(self.pieces) == 6:
                self.finish()

    for particles in (
        await smc_standard(Line(), 120, seed=1),
        await smc_steer(Line(), 20, 6, seed=1),
    ):
        assert particles.n_dead < len(particles)
        assert all("".join(p.pieces) == str(p.context) for p in particles if p.weight > -math.inf)
        assert len(particles.posterior(lambda p: tuple(p.pieces))) > 1
