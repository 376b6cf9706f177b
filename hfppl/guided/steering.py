"""Steering in one call."""

import asyncio
import threading
from typing import Any

from ..constraints import Constraint
from ..inference import Particles, smc_standard
from ..llms import CachedCausalLM
from .model import Ending, GuidedModel
from .next_token import MAX_TESTS


async def steer(
    lm: CachedCausalLM,
    prompt: Any,
    constraint: Constraint,
    n_particles: int = 20,
    max_tokens: int = 100,
    *,
    temp: float = 1.0,
    critic: Any = None,
    proposal: Any = None,
    end: Ending = "eos",
    heal: bool = False,
    max_tests: int = MAX_TESTS,
    **options: Any,
) -> Particles:
    """Texts of a language model that obey a constraint, by sequential Monte Carlo.

    `particles.posterior()` has the texts, without end tokens, and their probabilities;
    `particles.log_marginal_likelihood` says how probable the constraint was.

    Args:
        lm: the language model.
        prompt: a text, token ids, or chat messages.
        constraint: what a text must be, from `hfppl.constraints`.
        n_particles: how many particles.
        max_tokens: the most tokens a text may have, its end token included if it ends with one.
        temp: see `GuidedModel`, as for `critic`, `proposal`, `end`, `heal` and `max_tests`.
        options: further arguments of `smc_standard`, such as `seed` and `progress`.

    Raises:
        HfpplError: as `GuidedModel` and `smc_standard` do, before any model call.
    """
    model = GuidedModel(
        lm, prompt, constraint, max_tokens, temp, critic, proposal, end=end, heal=heal, max_tests=max_tests
    )
    return await smc_standard(model, n_particles, **options)


def steer_sync(*args: Any, **kwargs: Any) -> Particles:
    """`steer`, blocking: also where an event loop is running already, as in a notebook."""
    outcome: list[Particles] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(steer(*args, **kwargs)))
        except BaseException as error:  # whatever it is belongs to the caller
            failure.append(error)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run()
    else:
        thread = threading.Thread(target=run, name="hfppl-steer")
        thread.start()
        thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
