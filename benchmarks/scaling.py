"""How the cost grows with the length of a run and with the number of particles."""

import asyncio
import itertools
import resource
import statistics
import time
from typing import Any

import hfppl
from hfppl import CachedCausalLM


class Free(hfppl.Model):
    """Tokens as the language model draws them, end tokens left out, so that every run is as long."""

    def __init__(self, lm: CachedCausalLM, prompt: Any, n_tokens: int, tilt: float = 0.0) -> None:
        super().__init__()
        self.context = hfppl.LMContext(lm, prompt)
        self.going_on = ~lm.masks.EOS
        self.n_tokens = n_tokens
        self.tilt = tilt

    async def step(self) -> None:
        """One token; the score makes weights differ, so that particles are resampled."""
        await self.observe(self.context.mask_dist(self.going_on), True)
        token = await self.sample(self.context.next_token())
        self.score(self.tilt * (token.token_id % 7))
        if self.context.token_count == self.n_tokens:
            self.finish()


def step_seconds(lm: CachedCausalLM, n_particles: int, n_tokens: int) -> list[float]:
    """Seconds of each step of one run."""
    lm.clear_cache()
    times = [time.perf_counter()]
    model = Free(lm, "Once upon a time", n_tokens, tilt=0.1)
    asyncio.run(
        hfppl.smc_standard(model, n_particles, seed=0, on_step=lambda _: times.append(time.perf_counter()))
    )
    return [after - before for before, after in itertools.pairwise(times)]


def late_over_early(lm: CachedCausalLM, n_particles: int, late: int, early: int) -> float:
    """Cost of a step around token `late` over that around token `early`."""
    seconds = step_seconds(lm, n_particles, late)
    return statistics.median(seconds[late - 20 :]) / statistics.median(seconds[early - 10 : early + 10])


def tokens_per_second(lm: CachedCausalLM, n_particles: int, n_tokens: int) -> float:
    """Of one run from an empty cache."""
    return n_particles * n_tokens / sum(step_seconds(lm, n_particles, n_tokens))


def first_step_seconds(lm: CachedCausalLM, prompt: list[int], clear: bool) -> float:
    """Seconds to the end of the first step."""
    if clear:
        lm.clear_cache()
    start = time.perf_counter()
    asyncio.run(hfppl.smc_standard(Free(lm, prompt, 1), 20, seed=0))
    return time.perf_counter() - start


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
