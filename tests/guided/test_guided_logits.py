"""A look at the next token under a rule, without sampling anything."""

import math

import numpy as np
import pytest

from hfppl import CachedCausalLM, LMContext
from hfppl.constraints import Choice, Predicate, Regex
from hfppl.errors import ArgumentError

VOCAB = ["Is", " it", "?", " True", " False", " Maybe", "1", "9", "2", ".", "<eos>"]
EOS = 10
LOGITS = np.array([3.0, 2.0, 1.0, 0.5, -0.25, 4.0, 1e3, 1.5, 2.5, 0.0, 1.0])


def language_model() -> CachedCausalLM:
    return CachedCausalLM.from_function(VOCAB, lambda ids: LOGITS + len(ids), [EOS])


def test_allowed_logits_are_the_raw_ones() -> None:
    lm = language_model()
    logits = lm.next_token_logits_unbatched("Is it?", Choice([" True", " False"]))
    assert set(np.flatnonzero(logits > -np.inf)) == {3, 4}
    raw = lm.next_token_logits_unbatched("Is it?")
    assert (logits[[3, 4]] == raw[[3, 4]]).all()  # though probabilities beside exp(1000) are zero
    p_true = 1 / (1 + math.exp(logits[4] - logits[3]))
    assert math.isclose(p_true, 1 / (1 + math.exp(-0.75)))


def test_log_probabilities_are_normalised_over_what_is_allowed() -> None:
    lm = language_model()
    ids = lm.tokenizer.encode("Is it?")
    logprobs = lm.next_token_logprobs_unbatched(ids, Choice([" True", " False"]))
    assert math.isclose(np.exp(logprobs).sum(), 1)
    assert math.isclose(logprobs[3] - logprobs[4], 0.75)


async def test_a_prefix_is_part_of_the_constrained_text() -> None:
    lm = language_model()
    octets = Regex(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
    assert set(np.flatnonzero(await lm.next_token_logits("Is it?", octets) > -np.inf)) == {6, 7, 8}
    after = await lm.next_token_logits("Is it?192.1.1", octets, prefix="192.1.1")
    assert set(np.flatnonzero(after > -np.inf)) == {6, 7, 8, 9}
    end = await lm.next_token_logits("Is it?1.1.1.192", octets, prefix=b"1.1.1.192")
    assert set(np.flatnonzero(end > -np.inf)) == {EOS}
    with pytest.raises(ArgumentError, match="does not allow a text that begins with '1921'"):
        await lm.next_token_logits("Is it?1921", octets, prefix="1921")
    with pytest.raises(ArgumentError, match="pass one"):
        await lm.next_token_logits("Is it?", prefix="x")


def test_a_checker_tests_every_token() -> None:
    lm = language_model()
    logits = lm.next_token_logits_unbatched("Is it?", Predicate(lambda text: text.isdigit()))
    assert set(np.flatnonzero(logits > -np.inf)) == {6, 7, 8}


async def test_looking_and_then_sampling_is_one_model_call() -> None:
    lm = language_model()
    await lm.next_token_logits("Is it?", Choice([" True", " False"]))
    await lm.next_token_logits("Is it?")
    context = LMContext(lm, "Is it?")
    await context.next_token().sample()
    assert lm.stats().forward_passes == 1
