"""Corners of guided generation where a text, a weight or an error has gone wrong or easily could."""

import math
from typing import Any

import numpy as np
import pytest

from hfppl import CachedCausalLM, GuidedModel, Model, enumerate_exact, smc_standard, steer, steer_sync
from hfppl.constraints import Choice, Predicate, Regex, TokenLimit
from hfppl.errors import ArgumentError

from .enumerated import ENDS, VOCAB, language_model, to_boundary

LM = language_model()


def uniform(tokens: list[bytes] | list[str], ends: list[int]) -> CachedCausalLM:
    return CachedCausalLM.from_function(tokens, lambda ids: [0.0] * len(tokens), eos_token_ids=ends)


async def mean_z(model: Model, n_particles: int, n_runs: int) -> tuple[float, float]:
    """The mean estimate of Z, and its standard error."""
    runs = [await smc_standard(model, n_particles, seed=seed) for seed in range(n_runs)]
    z = np.exp([run.log_marginal_likelihood for run in runs])
    return float(z.mean()), float(z.std(ddof=1) / math.sqrt(n_runs))


# --- proposals


async def test_a_proposal_need_not_cover_what_ends_a_text_at_a_boundary() -> None:
    def no_bb(text: str) -> bool:
        return "bb" not in text

    def of_ab_only(logprobs: np.ndarray) -> np.ndarray:
        kept = np.array([set(entry) <= set(b"ab") for entry in VOCAB])
        return np.where(kept, logprobs, -np.inf)

    rule = Regex("[ab]*") & Predicate(no_bb)

    def goes_on(text: str) -> bool:
        return no_bb(text) and set(text) <= set("ab")

    exact = math.fsum(to_boundary(goes_on, goes_on, 2).values())
    z, error = await mean_z(GuidedModel(LM, "", rule, 2, end="boundary", proposal=of_ab_only), 40, 40)
    assert error < 0.02 * exact
    assert abs(z - exact) < 5 * error


async def test_enumeration_counts_what_another_language_model_cannot_draw() -> None:
    p, q = np.array([0.5, 0.2, 0.3]), np.array([0.0, 0.9, 0.1])
    target = CachedCausalLM.from_function(["a", "b", "."], lambda ids: np.log(p), [2])
    with np.errstate(divide="ignore"):
        rows = np.log(q)
    other = CachedCausalLM.from_function(["a", "b", "."], lambda ids: rows, [2])
    found = await enumerate_exact(GuidedModel(target, "", Choice(["a"]), 3, proposal=other))
    assert math.isclose(math.exp(found.log_marginal_likelihood), 0.5 * 0.3)
    assert found.missed_by_proposals == 1
    found = await enumerate_exact(GuidedModel(target, "", Choice(["a", "b"]), 3, proposal=other))
    assert math.isclose(math.exp(found.log_marginal_likelihood), 0.7 * 0.3)
    assert math.isclose(found.missed_by_proposals, 0.5 / 0.7)
    with pytest.raises(ArgumentError, match="leaves none of the possible"):
        await smc_standard(GuidedModel(target, "", Choice(["a"]), 3, proposal=other), 5, seed=0)


@pytest.mark.parametrize("rule", [Choice(["ab"]), Choice(["ab"]) & Predicate(lambda text: True)])
def test_a_proposal_sees_only_what_may_come_and_must_leave_some_of_it(rule: Any) -> None:
    seen = []

    def look(logprobs: np.ndarray) -> np.ndarray:
        seen.append(set(np.flatnonzero(logprobs > -np.inf).tolist()))
        return logprobs

    steer_sync(LM, "", rule, 5, 4, proposal=look, seed=0)
    may_come = {i for i, entry in enumerate(VOCAB) if i in ENDS or set(entry) <= set(b"ab")}
    assert seen
    assert all(ids <= may_come for ids in seen)

    def only_smileys(logprobs: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(VOCAB)) == 5, logprobs, -np.inf)

    with pytest.raises(ArgumentError, match="leaves none of the possible"):
        steer_sync(LM, "", rule, 5, 4, proposal=only_smileys, seed=0)


# --- texts


@pytest.mark.parametrize("prompt", [[0, 1], "as"])
async def test_an_end_token_that_adds_only_its_end_takes_only_that_with_it(prompt: Any) -> None:
    lm = uniform(["a", "s", "stop", "st", "!"], [])
    lm.eos_token_ids = {2}  # an ordinary token, which may take the place of the prompt's last one
    model = GuidedModel(lm, prompt, Regex("t?!?"), 3, heal=True)
    found = await enumerate_exact(model)
    assert set(found.posterior()) == {"", "t", "!", "t!"}


def test_a_limit_of_tokens_alone_is_about_texts() -> None:
    lm = CachedCausalLM.from_function(
        [b"a", b"\xc3", b"\xa9", b"\xff", b"<x>", b"<end>"], lambda ids: [0.0] * 6, eos_token_ids=[5]
    )
    texts = steer_sync(lm, "", TokenLimit(3), 300, 4, seed=0).posterior()
    assert "é" in texts
    assert not any("\ufffd" in text for text in texts)
    assert all(set(text.replace("<x>", "")) <= set("aé") for text in texts)


async def test_a_critic_is_asked_about_whole_characters() -> None:
    lm = uniform([b"a", b"\xc3", b"\xa9", b"<end>"], [3])
    asked = []

    def critic(text: str) -> float:
        asked.append(text)
        return 0.0 if text in ("", "é") else -math.inf

    found = await enumerate_exact(GuidedModel(lm, "", Regex("é?"), 3, critic=critic))
    assert math.isclose(math.exp(found.log_marginal_likelihood), 1 / 4 + 1 / 64)
    assert set(asked) == {"", "é"}


async def test_a_long_list_of_choices() -> None:
    texts = [f"{i}x" for i in range(5000)]
    lm = uniform([*"0123456789x", "<end>"], [11])
    state = Choice(texts).start(lm)
    for byte in b"4321x":
        assert state.advance_bytes(bytes([byte]))
    assert state.can_end
    particles = await steer(lm, "", Choice(texts), 20, 7, seed=0)
    assert set(particles.posterior()) <= set(texts)
    assert particles.posterior()


# --- what is refused


class AsyncChecker:
    async def __call__(self, text: str) -> bool:
        return False


async def async_checker(text: str) -> bool:
    return False


def test_a_checker_that_must_be_awaited_is_refused() -> None:
    for checker in (async_checker, AsyncChecker()):
        with pytest.raises(ArgumentError, match="a plain function"):
            Predicate(checker)
    with pytest.raises(ArgumentError, match="answers with an awaitable"):
        steer_sync(LM, "", Predicate(lambda text: async_checker(text)), 3, 3, seed=0)


async def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ArgumentError, match="a language model is"):
        GuidedModel("gpt2", "", Regex("a"), 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a proposal is"):
        GuidedModel(LM, "", Regex("a"), 3, proposal=async_checker)
    for critic in (lambda text: None, lambda text: "high"):
        with pytest.raises(ArgumentError, match="a critic's log-factor"):
            await steer(LM, "", Regex("a*"), 3, 3, critic=critic, seed=0)
    with pytest.raises(ArgumentError, match="a constraint is made with"):
        LM.next_token_logits_unbatched("a", "abc")
    with pytest.raises(ArgumentError, match="a prefix is"):
        LM.next_token_logits_unbatched("a", Regex("a*"), prefix=None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="does not allow"):
        LM.next_token_logits_unbatched("a", Regex("a*"), prefix="\ud800")
