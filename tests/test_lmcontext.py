"""A generation in progress: what it asks, and when; what its events weigh; what it shows."""

from __future__ import annotations

import asyncio
import copy
import math
from typing import Any

import numpy as np
import pytest
from tables import ABC, Counted, Gated, always, random_law, sizes, table_lm

from hfppl import CachedCausalLM, LMContext, Model, TokenMask, smc_standard
from hfppl.errors import ArgumentError, NoMassError, VocabularyError

LAW = always(0.4, 0.3, 0.2, 0.1)


# --- when it asks


async def test_neither_making_nor_forcing_nor_reading_asks_anything() -> None:
    counted = Counted(LAW)
    context = LMContext(table_lm(counted), "ab")
    await LMContext.create(context.lm, "b")
    dist = context.next_token()
    context.mask_dist({1})
    await dist.intervene(2)
    assert (str(context), context.tokens, context.token_count) == ("c", [0, 1, 2], 1)
    assert len(context.model_mask) == 4
    assert counted.asked == []


async def test_every_question_about_one_place_shares_one_forward_and_the_last_token_costs_none() -> None:
    counted = Counted(LAW)
    context = LMContext(table_lm(counted), "a")
    await context.mask_dist({0, 1, 2}).sample()
    await context.mask_dist({0}).log_prob(False)
    await context.logprobs()
    await context.next_token().sample()
    await context.next_token().log_prob(3)
    assert counted.asked == [(0,), tuple(context.tokens[:2])]


async def test_a_token_that_ends_a_particle_costs_no_forward() -> None:
    counted = Counted(always(0, 0, 0, 1))

    class Ends(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            if await self.sample(self.context.next_token()) == 3:
                self.finish()

    lm = table_lm(counted)
    await smc_standard(Ends(), 5, seed=0)
    assert counted.asked == [(0,)]


async def test_target_and_proposal_with_one_prompt_ask_once() -> None:
    counted = Counted(LAW)
    lm = table_lm(counted)

    class Two(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context, self.q = LMContext(lm, "a"), LMContext(lm, [0])

        async def step(self) -> None:
            await self.intervene(self.q.mask_dist({0, 1}), True)
            await self.sample(self.context.next_token(), proposal=self.q.next_token())
            if self.context.token_count == 2:
                self.finish()

    await smc_standard(Two(), 10, seed=0)
    assert sorted(counted.asked) == [(0,), (0, 0), (0, 1)]
    assert sizes(lm) == [1, 2]


async def test_a_dead_particle_asks_nothing_more() -> None:
    counted = Counted(LAW)
    lm = table_lm(counted)

    class Dies(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            self.condition(False)
            await self.sample(self.context.mask_dist({0}))
            await self.observe(self.context.next_token(), 1)
            await self.sample(self.context.next_token())
            assert len(self.context.next_token_logprobs) == 4
            assert len(await lm.next_token_logprobs([2, 2])) == 4

    particles = await smc_standard(Dies(), 3, seed=0)
    assert particles.n_dead == 3
    assert counted.asked == []


# --- what events weigh


async def test_a_mask_narrows_the_context_both_ways() -> None:
    context = LMContext(table_lm(LAW), "a")
    assert await context.mask_dist({0, 1}).log_prob(True) == pytest.approx(math.log(0.7))
    assert context.model_mask == {0, 1}
    assert await context.mask_dist({1, 2}).log_prob(False) == pytest.approx(math.log(0.4 / 0.7))
    assert context.model_mask == {0}
    assert np.exp(await context.logprobs()) == pytest.approx([1, 0, 0, 0])
    assert await context.next_token().sample() == (0, 0.0)
    assert len(context.model_mask) == 4  # lifted for the next token


async def test_sampled_answers_come_with_their_frequency_and_their_log_probability() -> None:
    lm = table_lm(LAW)
    np.random.seed(0)
    answers = []
    for _ in range(400):
        context = LMContext(lm, "a")
        answer, log_prob = await context.mask_dist({0, 3}).sample()
        assert context.model_mask == ({0, 3} if answer else {1, 2})
        assert log_prob == pytest.approx(math.log(0.5))
        answers.append(answer)
    assert abs(np.mean(answers) - 0.5) < 4 * 0.5 / 20


@pytest.mark.parametrize("mask", [[0, 1, 2, 3], {0, 1, 2}, TokenMask])
async def test_a_mask_of_all_that_is_possible_weighs_exactly_nothing(mask: Any) -> None:
    for seed in range(20):
        # The fourth token is impossible, so three of them hold all the mass.
        law = [*np.random.default_rng(seed).dirichlet(np.ones(3)), 0.0]
        context = LMContext(table_lm(always(*law)), "a", temp=0.3 + seed / 10)
        full = context.lm.masks.ALL_TOKENS if mask is TokenMask else mask
        assert await context.mask_dist(full).log_prob(True) == 0.0
        assert await context.mask_dist(full).sample() == (True, 0.0)
        assert await context.mask_dist(full).log_prob(False) == -math.inf


async def test_a_faint_token_keeps_its_log_probability() -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [0.0, -40.0, -900.0, -math.inf], [3])
    context = LMContext(lm, "a")
    assert await context.mask_dist({1, 2, 3}).log_prob(True) == pytest.approx(-40)
    assert await context.mask_dist({2, 3}).log_prob(True) == pytest.approx(-860)
    assert await context.next_token().sample() == (2, 0.0)


async def test_temperature_divides_the_logits() -> None:
    context = LMContext(table_lm(LAW), "a", 0.5)
    squares = np.array([0.16, 0.09, 0.04, 0.01])
    assert np.exp(await context.logprobs()) == pytest.approx(squares / squares.sum())
    context.temp = 1
    assert np.exp(await context.logprobs()) == pytest.approx([0.4, 0.3, 0.2, 0.1])


async def test_temperature_zero_is_the_first_of_the_likeliest_and_nothing_else() -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [1.0, 2.0, 2.0, -math.inf], [3])
    context = LMContext(lm, "a", temp=0)
    assert await context.next_token().log_prob(2) == -math.inf
    assert await context.mask_dist({0, 2, 3}).log_prob(True) == -math.inf
    assert context.token_count == 0
    assert await context.mask_dist({1, 2}).log_prob(True) == 0.0
    assert list(await context.logprobs()) == [-math.inf, 0.0, -math.inf, -math.inf]
    assert await context.next_token().sample() == (1, 0.0)
    assert await context.next_token().intervene(0)  # what is forced need not be possible
    assert str(context) == "ba"


@pytest.mark.parametrize("temp", [-1.0, -1e-9, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temp: float) -> None:
    lm = table_lm(LAW)
    with pytest.raises(ArgumentError, match="temperature"):
        LMContext(lm, "a", temp)
    context = LMContext(lm, "a")
    with pytest.raises(ArgumentError, match="temperature"):
        context.temp = temp
    assert context.temp == 1


async def test_masked_tokens_stay_impossible_at_every_temperature() -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [0.0, -math.inf, 1.0, 0.5], [3])
    for temp in (0, 1e-3, 0.5, 1, 50):
        context = LMContext(lm, "a", temp)
        logprobs = await context.logprobs()
        assert logprobs[1] == -math.inf
        assert np.exp(logprobs).sum() == pytest.approx(1)


# --- what leaves it as it was


async def test_events_of_probability_zero_leave_it_exactly_as_it_was() -> None:
    context = LMContext(table_lm(always(0.5, 0.5, 0, 0)), "a")
    await context.mask_dist({0, 2}).log_prob(True)
    before = (context.tokens, context.model_mask, str(context), (await context.logprobs()).tolist())
    assert await context.next_token().log_prob(1) == -math.inf  # masked out
    assert await context.next_token().log_prob(2) == -math.inf  # without mass
    assert await context.mask_dist({1}).log_prob(True) == -math.inf
    assert await context.mask_dist({0}).log_prob(False) == -math.inf
    assert not await context.mask_dist(set()).intervene(True)
    after = (context.tokens, context.model_mask, str(context), (await context.logprobs()).tolist())
    assert after == before


async def test_nothing_possible_is_an_error_outside_inference() -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [-math.inf] * 4, [3])
    for temp in (0, 1):
        context = LMContext(lm, "a", temp)
        with pytest.raises(NoMassError):
            await context.next_token().sample()
        with pytest.raises(NoMassError):
            await context.mask_dist({0}).sample()
        assert context.tokens == [0]


@pytest.mark.parametrize("event", ["sample", "observe", "mask", "logprobs"])
async def test_a_cancellation_while_it_waits_leaves_it_whole(event: str) -> None:
    gated = Gated(always(0.5, 0.5, 0, 0))
    context = LMContext(table_lm(gated), "a")
    calls = {
        "sample": context.next_token().sample,
        "observe": lambda: context.next_token().log_prob(1),
        "mask": lambda: context.mask_dist({1}).log_prob(True),
        "logprobs": context.logprobs,
    }
    task = asyncio.ensure_future(calls[event]())
    await gated.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gated.gate.set()
    assert context.tokens == [0]
    assert len(context.model_mask) == 4
    assert await context.next_token().log_prob(1) == pytest.approx(math.log(0.5))
    assert context.tokens == [0, 1]


async def test_a_token_or_an_id_that_does_not_exist_is_refused_and_changes_nothing() -> None:
    context = LMContext(table_lm(LAW), "a")
    for wrong in (4, -1, "a", 1.0, None, True):
        with pytest.raises(VocabularyError):
            await context.next_token().log_prob(wrong)
        with pytest.raises(VocabularyError):
            await context.next_token().intervene(wrong)
    assert context.tokens == [0]


# --- what it shows


async def test_the_prompt_and_the_end_are_shown_when_asked_for() -> None:
    lm = table_lm(LAW)
    shown = {}
    for show_prompt in (False, True):
        for show_eos in (False, True):
            context = LMContext(lm, "ab", show_prompt=show_prompt, show_eos=show_eos)
            start = str(context)
            for token_id in (2, 3):
                await context.next_token().intervene(token_id)
            shown[show_prompt, show_eos] = (start, str(context))
    assert shown == {
        (False, False): ("", "c"),
        (False, True): ("", "c."),
        (True, False): ("ab", "abc"),
        (True, True): ("ab", "abc."),
    }


def test_an_end_in_the_prompt_is_shown_with_it() -> None:
    context = LMContext(table_lm(LAW), [0, 3], show_prompt=True, show_eos=False)
    assert (str(context), context.prompt_string_length, context.prompt_token_count) == ("a.", 2, 2)


async def test_half_a_character_shows_as_a_replacement_and_is_exact_in_bytes() -> None:
    halves = (b"\xf0\x9f", b"\x98\x80", b"x", "é")
    context = LMContext(table_lm(LAW, halves, ()), "xé")
    assert context.prompt_string_length == 2
    seen = []
    for token_id in (0, 1, 2, 0):
        await context.next_token().intervene(token_id)
        seen.append((str(context), bytes(context)))
    assert seen == [
        ("\ufffd", b"\xf0\x9f"),
        ("😀", "😀".encode()),
        ("😀x", "😀x".encode()),
        ("😀x\ufffd", "😀x".encode() + b"\xf0\x9f"),
    ]
    assert str(context.s) == "xé😀x\ufffd"


def test_the_lists_it_hands_out_are_the_callers_own() -> None:
    context = LMContext(table_lm(LAW), "ab")
    context.tokens.append(9)
    context.s.seq.append(9)
    assert context.tokens == [0, 1]


async def test_log_probabilities_are_the_callers_own_and_rows_are_read_only() -> None:
    lm = table_lm(LAW)
    context = LMContext(lm, "a")
    (await context.logprobs())[:] = 0
    (await lm.next_token_logprobs([0]))[:] = 0
    (await lm.next_token_logits("a"))[:] = 0
    assert np.exp(await context.logprobs()) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    row = await context._row()
    with pytest.raises(ValueError, match="read-only"):
        row.logits[0] = 0.0


@pytest.mark.parametrize("prompt", [3, None, object()])
def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    with pytest.raises(ArgumentError, match="prompt"):
        LMContext(table_lm(LAW), prompt)


# --- blocking, and copies


def test_reading_log_probabilities_blocks_for_one_forward_outside_a_loop() -> None:
    counted = Counted(LAW)
    context = LMContext(table_lm(counted), "a")
    assert np.exp(context.next_token_logprobs) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert np.exp(context.next_token_logprobs) == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert counted.asked == [(0,)]


async def test_reading_log_probabilities_inside_a_loop_agrees_with_asking_for_them() -> None:
    counted = Counted(random_law(0))
    context = LMContext(table_lm(counted), "a", temp=0.8)
    await context.mask_dist({0, 2}).log_prob(True)
    await context.next_token().sample()
    blocking = context.next_token_logprobs
    assert blocking == pytest.approx(await context.logprobs())
    assert len(counted.asked) == 2


async def test_copies_share_rows_and_masks_but_not_where_they_stand() -> None:
    counted = Counted(LAW)
    context = LMContext(table_lm(counted), "a")
    mask = context.lm.token_mask({0, 1})
    await context.mask_dist(mask).log_prob(True)
    twin = copy.deepcopy(context)
    assert twin.lm is context.lm
    assert twin.model_mask is context.model_mask
    assert await twin._row() is await context._row()
    await twin.mask_dist({0}).log_prob(True)
    await twin.next_token().sample()
    assert (context.tokens, context.model_mask) == ([0], {0, 1})
    assert (twin.tokens, len(twin.model_mask)) == ([0, 0], 4)
    assert counted.asked == [(0,)]


def test_a_subclass_keeps_its_own_attributes_apart_in_copies() -> None:
    class Noted(LMContext):
        pass

    context = Noted(table_lm(LAW), "a")
    context.notes = [["x"]]
    twin = copy.deepcopy(context)
    twin.notes[0].append("y")
    assert type(twin) is Noted
    assert context.notes == [["x"]]


async def test_outcomes_are_listed_without_acting_on_them() -> None:
    context = LMContext(table_lm(always(0.4, 0.3, 0, 0.3)), "a")
    await context.mask_dist({0, 1, 2}).log_prob(True)
    answers = await context.mask_dist({0, 3}).outcomes()
    assert answers == [(True, pytest.approx(math.log(4 / 7))), (False, pytest.approx(math.log(3 / 7)))]
    tokens = await context.next_token().outcomes()
    assert tokens == [(0, pytest.approx(math.log(4 / 7))), (1, pytest.approx(math.log(3 / 7)))]
    assert (context.tokens, context.model_mask) == ([0], {0, 1, 2})


@pytest.mark.parametrize("temp", [1e-31, 1e-46, 1e-310])
def test_a_temperature_too_small_to_divide_by_is_zero(temp: float) -> None:
    assert LMContext(table_lm(random_law(2)), "a", temp=temp).temp == 0
