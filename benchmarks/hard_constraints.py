"""The family's classic, in the family's spelling: every word at most five letters, a masked proposal.

The same file runs on hfppl and on llamppl; only the module that the names come from differs.

    python hard_constraints.py MODULE MODEL_FOLDER N_RUNS [--cache-prompt]

prints the seconds of each run, as a JSON list.
"""

import argparse
import asyncio
import importlib
import json
import time
from typing import Any

import numpy as np

PROMPT = (
    "The town council met on Tuesday night to talk about the old bridge over the river. For more than a "
    "century the bridge has carried carts, cars and children on their way to school, and for the last ten "
    "years it has been closed to everything but bicycles. Engineers say that the stone arches are sound and "
    "that the deck could be replaced within a single summer. Shopkeepers on the north bank want it open "
    "again before the autumn fair; some neighbours fear the noise. At the end of a long evening, the head "
    "of the council stood up and said"
)
N_PARTICLES = 20
N_TOKENS = 30
LETTERS = 5


def masks_of(lm: Any) -> dict[int, Any]:
    """For each number of letters the current word has, the tokens that may come next."""

    def fits(text: str, n_letters: int) -> bool:
        words = text.split(" ")
        if any(ch in text for ch in "\n\t") or not text:
            return False
        return len(words[0]) + n_letters <= LETTERS and all(len(word) <= LETTERS for word in words[1:])

    sets = {n: {i for i, text in enumerate(lm.str_vocab) if fits(text, n)} for n in range(LETTERS + 1)}
    return {n: lm.token_mask(ids) if hasattr(lm, "token_mask") else ids for n, ids in sets.items()}


def model_class(library: Any) -> type:
    """The model, as a subclass of the library's `Model`."""

    class HardConstraints(library.Model):  # type: ignore[misc]
        def __init__(self, lm: Any, masks: dict[int, Any], n_tokens: int) -> None:
            super().__init__()
            self.lm = lm
            self.masks = masks
            self.context = library.LMContext(lm, PROMPT)
            self.q = library.LMContext(lm, PROMPT)
            self.left = n_tokens

        def immutable_properties(self) -> set[str]:
            return {"lm", "masks"}

        async def step(self) -> None:
            mask = self.masks[min(LETTERS, len(str(self.context).split(" ")[-1]))]
            await self.intervene(self.q.mask_dist(mask), True)
            token = await self.sample(self.context.next_token(), proposal=self.q.next_token())
            self.condition(token.token_id in mask)
            self.left -= 1
            if self.left == 0 or token == self.lm.tokenizer.eos_token_id:
                self.finish()

    return HardConstraints


def run(library: Any, lm: Any, masks: dict[int, Any], cache_prompt: bool, seed: int) -> float:
    """Seconds of one run from an empty cache."""
    lm.clear_cache()
    np.random.seed(seed)
    start = time.perf_counter()
    if cache_prompt:
        lm.cache_kv(lm.tokenizer.encode(PROMPT))
    model = model_class(library)(lm, masks, N_TOKENS)
    asyncio.run(library.smc_standard(model, N_PARTICLES, 0.5))
    return time.perf_counter() - start


def main() -> None:
    """Run as told by the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("model")
    parser.add_argument("n_runs", type=int)
    parser.add_argument("--cache-prompt", action="store_true")
    arguments = parser.parse_args()
    library = importlib.import_module(arguments.module)
    options = {"batch_size": N_PARTICLES} if arguments.module == "llamppl" else {}
    lm = library.CachedCausalLM.from_pretrained(arguments.model, backend="hf", **options)
    masks = masks_of(lm)
    seconds = [run(library, lm, masks, arguments.cache_prompt, seed) for seed in range(arguments.n_runs)]
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
