"""A prompt's last token drawn again, among those that begin as it does."""

import math

import numpy as np
import pytest
from tables import random_law, table_lm

from hfppl import CachedCausalLM, LMContext, Model, enumerate_exact
from hfppl.errors import ArgumentError

VOCAB = ["h", "ht", "htt", "t", "http", "p", ":", "<end>"]
END = 7


def law(ids: list[int]) -> np.ndarray:
    return np.log(np.random.default_rng([11, *ids]).dirichlet(np.ones(len(VOCAB))))


LM = CachedCausalLM.from_function(VOCAB, law, [END])


class Continue(Model):
    """Two tokens after the prompt ":ht", of which the first replaces "ht"."""

    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, ":ht", heal=True)
        self.ids: list[int] = []

    async def step(self) -> None:
        self.ids.append(int(await self.sample(self.context.next_token())))
        if len(self.ids) == 2:
            self.finish()


async def test_it_is_the_models_distribution_given_the_beginning() -> None:
    particles = await enumerate_exact(Continue())
    first = np.exp(law([6]))
    allowed = [i for i, text in enumerate(VOCAB) if text.startswith("ht")]
    exact = {
        (i, j): first[i] / first[allowed].sum() * np.exp(law([6, i]))[j]
        for i in allowed
        for j in range(len(VOCAB))
    }
    found = particles.posterior(lambda particle: tuple(particle.ids))
    assert found.keys() == exact.keys()
    for ids, p in exact.items():
        assert found[ids] == pytest.approx(p)
    assert math.exp(particles.log_marginal_likelihood) == pytest.approx(1)


async def test_only_what_is_added_is_shown() -> None:
    context = LMContext(LM, ":ht", heal=True)
    assert (str(context), context.token_count, context.tokens) == ("", 0, [6])
    assert context.prompt_string_length == 3
    await context.next_token().log_prob(4)
    assert (str(context), context.token_count, context.tokens) == ("tp", 1, [6, 4])
    assert str(context.s) == ":http"
    assert str(context.s)[context.prompt_string_length :] == str(context)
    await context.next_token().log_prob(6)
    assert str(context) == "tp:"


async def test_masks_narrow_what_may_be_drawn_again() -> None:
    context = LMContext(LM, ":ht", heal=True)
    p = np.exp(law([6]))
    expected = math.log(p[4] / p[[1, 2, 4]].sum())
    assert await context.mask_dist([4, 5]).log_prob(True) == pytest.approx(expected)
    assert await context.next_token().log_prob(2) == -math.inf


def test_special_tokens_are_not_drawn_again() -> None:
    assert END not in LM.masks.starting_with(b"<")
    assert set(LM.masks.starting_with(b"")) == set(range(END))


def test_it_is_off_unless_asked_for() -> None:
    assert LMContext(LM, ":ht").tokens == [6, 1]


def test_what_cannot_be_healed() -> None:
    with pytest.raises(ArgumentError, match="no ordinary token"):
        LMContext(LM, "", heal=True)
    with pytest.raises(ArgumentError, match="no ordinary token"):
        LMContext(LM, [6, END], heal=True)


async def test_a_prompt_of_one_token_where_the_empty_text_has_a_distribution() -> None:
    lm = table_lm(random_law(3))
    context = LMContext(lm, [0], heal=True)
    assert context.tokens == []
    token, _ = await context.next_token().sample()
    assert str(token).startswith(lm.vocab[0])
