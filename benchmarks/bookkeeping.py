"""What everything but the transformer costs: the hard-constraint model on a free language model."""

import asyncio
import time

import numpy as np

import hfppl
from hfppl import CachedCausalLM
from hfppl.constraints import Constraint
from hfppl.llms.function import LongestMatchTokenizer
from hfppl.llms.mock import MockBackend
from hfppl.tokens import Vocabulary

N_PARTICLES = 20
N_STEPS = 30


def free_lm(size: int) -> CachedCausalLM:
    """A language model of `size` made-up words that costs next to nothing."""
    words = [b"<end>"] + [f" w{i}".encode() for i in range(1, size)]
    vocabulary = Vocabulary(words, special_ids=[0])
    return CachedCausalLM._make(
        MockBackend(size), LongestMatchTokenizer(words, [0]), vocabulary, [0], None, None
    )


class Masked(hfppl.Model):
    """Two contexts, a masked proposal: the calls of the hard-constraint model."""

    def __init__(self, lm: CachedCausalLM, masks: list[hfppl.TokenMask]) -> None:
        super().__init__()
        self.lm = lm
        self.masks = masks
        self.context = hfppl.LMContext(lm, [1, 2, 3])
        self.q = hfppl.LMContext(lm, [1, 2, 3])

    def immutable_properties(self) -> set[str]:
        """What copies share."""
        return {"lm", "masks"}

    async def step(self) -> None:
        """One token."""
        mask = self.masks[len(str(self.context)) % len(self.masks)]
        await self.intervene(self.q.mask_dist(mask), True)
        token = await self.sample(self.context.next_token(), proposal=self.q.next_token())
        self.condition(token.token_id in mask)
        if self.context.token_count == N_STEPS:
            self.finish()


def microseconds_per_particle_step(size: int, n_runs: int) -> list[float]:
    """Of each run, by the process's own clock, which other processes disturb least."""
    lm = free_lm(size)
    rng = np.random.default_rng(0)
    masks = [lm.token_mask(rng.choice(np.arange(1, size), size // 3, replace=False)) for _ in range(6)]
    model = Masked(lm, masks)
    results = []
    for seed in range(n_runs + 1):
        lm.clear_cache()
        start = time.process_time()
        asyncio.run(hfppl.smc_standard(model, N_PARTICLES, seed=seed))
        results.append((time.process_time() - start) * 1e6 / (N_PARTICLES * N_STEPS))
    return results[1:]


def microseconds_per_mask(lm: CachedCausalLM, rule: Constraint, n_texts: int = 50) -> float:
    """Of a mask and of taking a token that it allows, averaged over random texts of the rule."""
    rng = np.random.default_rng(0)
    seconds, n_steps = 0.0, 0
    for _ in range(n_texts):
        state = rule.start(lm)
        token_id = -1
        while token_id not in lm.eos_token_ids:
            start = time.process_time()
            mask = state.mask()
            seconds += time.process_time() - start
            token_id = int(rng.choice(mask.ids))
            start = time.process_time()
            state.advance(token_id)
            seconds += time.process_time() - start
            n_steps += 1
    return seconds * 1e6 / n_steps
