"""The one-liner, and what it refuses."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from hfppl import CachedCausalLM, GuidedModel, steer, steer_sync
from hfppl.constraints import Choice, Predicate, Regex
from hfppl.errors import ArgumentError, NumericalError, VocabularyError

from .enumerated import language_model

LM = language_model()
ANY = Regex("[ab]*")


async def test_texts_carry_no_end_token() -> None:
    particles = await steer(LM, "", Choice(["ab", "aba"]), 10, 6, seed=1)
    assert set(particles.posterior()) == {"ab", "aba"}
    assert particles[0].context.tokens[-1] in LM.eos_token_ids


async def test_the_blocking_twin_works_inside_a_running_loop() -> None:
    inside = steer_sync(LM, "", ANY, 10, 5, seed=3)
    outside = await steer(LM, "", ANY, 10, 5, seed=3)
    assert inside.posterior() == outside.posterior()


def test_the_blocking_twin_works_without_a_loop() -> None:
    assert steer_sync(LM, "", ANY, 5, 4, seed=0).posterior()


async def test_errors_of_the_blocking_twin_reach_the_caller() -> None:
    with pytest.raises(ArgumentError, match="max_tokens"):
        steer_sync(LM, "", ANY, max_tokens=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"constraint": "a*"}, "hfppl.constraints"),
        ({"max_tokens": 0}, "max_tokens is a whole number"),
        ({"max_tokens": True}, "max_tokens is a whole number"),
        ({"max_tests": 0}, "max_tests is a whole number"),
        ({"temp": 0}, "nothing to sample"),
        ({"temp": -1.0}, "temperature"),
        ({"end": "soon"}, "boundary"),
        ({"critic": 3}, "critic is a function"),
        ({"proposal": 3}, "proposal is a language model"),
    ],
)
def test_bad_arguments_fail_before_any_model_call(change: dict[str, Any], message: str) -> None:
    lm = language_model()
    arguments: dict[str, Any] = {"lm": lm, "prompt": "", "constraint": ANY, "max_tokens": 5} | change
    with pytest.raises(ArgumentError, match=message):
        GuidedModel(**arguments)
    assert lm.stats().forward_passes == 0


def test_a_model_without_end_token_needs_a_boundary() -> None:
    lm = CachedCausalLM.from_function(["a", "b"], lambda ids: [0.0, 0.0])
    with pytest.raises(ArgumentError, match="end='boundary'"):
        GuidedModel(lm, "", ANY, 5)
    particles = steer_sync(lm, "", Regex("a*"), 50, 20, end="boundary", seed=0)
    assert math.isclose(particles.log_marginal_likelihood, 0.0, abs_tol=1e-12)


def test_a_proposal_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(VocabularyError, match="the proposal"):
        GuidedModel(LM, "", ANY, 5, proposal=CachedCausalLM.from_function(["a"], lambda ids: [0.0]))


async def test_a_proposal_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="leaves none"):
        await steer(LM, "", ANY, 4, 5, proposal=lambda logprobs: np.full_like(logprobs, -np.inf))
    with pytest.raises(ArgumentError, match="must keep their number"):
        await steer(LM, "", ANY, 4, 5, proposal=lambda logprobs: logprobs[1:])


async def test_what_cannot_be_is_a_dead_population() -> None:
    particles = await steer(LM, "", Choice(["xyz"]), 5, 5, seed=0)
    assert particles.log_marginal_likelihood == -math.inf
    assert particles.n_dead == 5
    assert particles.posterior() == {}
    impossible = await steer(LM, "", Predicate(lambda text: False), 5, 5, seed=0)
    assert impossible.n_dead == 5


class Judge:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def batch(self, texts: list[str]) -> list[float]:
        self.calls.append(texts)
        return [-float(len(text)) for text in texts]


async def test_a_critic_judges_all_particles_at_once() -> None:
    judge = Judge()
    await steer(LM, "", ANY, 12, 4, critic=judge, seed=0)
    assert len(judge.calls) <= 8  # in four steps, of which some particles need no forward pass
    assert all(len(set(call)) == len(call) for call in judge.calls)


async def test_a_critic_that_forbids_is_heard_on_the_way() -> None:
    seen: list[str] = []

    def critic(text: str) -> float:
        seen.append(text)
        return -math.inf if text.startswith("ab") else 0.0

    particles = await steer(LM, "", ANY, 20, 5, critic=critic, seed=0)
    assert not any(text.startswith("ab") for text in particles.posterior())
    assert any(text.startswith("ab") for text in seen)
    assert {text for text in seen if text.startswith("ab")} == {"ab"}  # which is where they died


async def test_a_critic_that_is_broken_is_named() -> None:
    with pytest.raises(NumericalError, match=r"twist|score"):
        await steer(LM, "", ANY, 3, 5, critic=lambda text: math.nan)

    class Short:
        def batch(self, texts: list[str]) -> list[float]:
            return [0.0] * (len(texts) + 1)

    with pytest.raises(ArgumentError, match="log-factors for"):
        await steer(LM, "", ANY, 3, 5, critic=Short())


async def test_what_a_checker_raises_arrives_unchanged() -> None:
    def checker(text: str) -> bool:
        raise ZeroDivisionError("in the checker")

    with pytest.raises(ZeroDivisionError, match="in the checker"):
        await steer(LM, "", Predicate(checker), 3, 5)


async def test_runs_side_by_side_are_runs_alone() -> None:
    together = await asyncio.gather(*(steer(LM, "", ANY, 8, 5, seed=seed) for seed in range(3)))
    for seed, particles in enumerate(together):
        alone = await steer(LM, "", ANY, 8, 5, seed=seed)
        assert (alone.log_weights == particles.log_weights).all()


async def test_a_checker_is_not_asked_about_the_vocabulary() -> None:
    lm = CachedCausalLM.from_pretrained(backend="mock")
    asked: list[str] = []

    def checker(text: str) -> bool:
        asked.append(text)
        return "e" not in text

    particles = await steer(lm, "Once", Predicate(checker), 5, 10, end="boundary", seed=1)
    assert all("e" not in text for text in particles.posterior())
    assert len(asked) < 5 * 10 * 40
