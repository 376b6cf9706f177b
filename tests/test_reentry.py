"""A language model asked from inside its own forward pass, and in a forked process."""

import asyncio
import os

import numpy as np
import pytest

from hfppl import CachedCausalLM
from hfppl.errors import HfpplError


def test_asking_from_inside_a_forward_pass_is_an_error_not_a_wait_for_ever() -> None:
    questions = {
        "row": lambda: lm.next_token_logprobs_unbatched([1]),
        "cache": lambda: lm.cache_kv([1]),
        "clear": lambda: lm.clear_cache(),
    }

    def law(ids: list[int]) -> np.ndarray:
        if ids == [0]:
            ask()
        return np.zeros(2)

    lm = CachedCausalLM.from_function(["a", "b"], law)
    for ask in questions.values():  # noqa: B007  (the law above reads it)
        with pytest.raises(HfpplError, match="from inside its own forward pass"):
            lm.next_token_logprobs_unbatched([0])
    assert np.exp(lm.next_token_logprobs_unbatched([1])).sum() == pytest.approx(1)


async def test_what_fails_for_one_sequence_is_no_concern_of_others() -> None:
    def law(ids: list[int]) -> np.ndarray:
        if ids == [0]:
            raise KeyError("only here")
        return np.zeros(2)

    lm = CachedCausalLM.from_function(["a", "b"], law)
    failed, fine = await asyncio.gather(
        lm.next_token_logprobs([0]), lm.next_token_logprobs([1]), return_exceptions=True
    )
    assert isinstance(failed, KeyError)
    assert isinstance(fine, np.ndarray)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_worker_of_its_own() -> None:
    lm = CachedCausalLM.from_function(["a", "b"], lambda ids: np.zeros(2))
    lm.next_token_logprobs_unbatched([0])  # the worker's thread is running now
    child = os.fork()
    if child == 0:
        sum_ = float(np.exp(lm.next_token_logprobs_unbatched([1])).sum())
        os._exit(0 if abs(sum_ - 1) < 1e-9 else 1)
    assert os.waitpid(child, 0)[1] == 0
