"""One JSON object, or one IPv4 address, from the same prompt under the same rule, by each library.

    python constrained.py LIBRARY MODEL_FOLDER TASK N_RUNS

where LIBRARY is hfppl, outlines or genlm, and TASK json or ipv4; prints a JSON list with, for each run,
its seconds, tokens and texts. Twenty texts a run. outlines masks tokens and draws twenty texts in one
batch; genlm-control and hfppl weigh twenty particles by sequential Monte Carlo.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

N_PARTICLES = 20
MAX_TOKENS = {"json": 60, "ipv4": 20}
PROMPTS = {
    # After two of them, a third is likely to begin at once: libraries differ in what may come before.
    "json": (
        '{"name": "Anna Lind", "age": 31, "colours": ["red"]}\n'
        '{"name": "Tom Okafor", "age": 7, "colours": ["green", "blue"]}\n'
    ),
    "ipv4": "The router answers at the address ",
}
COLOURS = ["red", "green", "blue"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colours": {"type": "array", "items": {"enum": COLOURS}, "maxItems": 3},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}
OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"({OCTET}\.){{3}}{OCTET}"

Run = Callable[[int], tuple[int, list[str]]]  # from a seed to the number of tokens, and the texts


def hfppl_runs(folder: str, task: str) -> Run:
    """This library: `steer`."""
    from hfppl import CachedCausalLM, steer_sync
    from hfppl.constraints import JsonSchema, Regex

    lm = CachedCausalLM.from_pretrained(folder)
    rule = JsonSchema(SCHEMA) if task == "json" else Regex(IPV4)

    def run(seed: int) -> tuple[int, list[str]]:
        lm.clear_cache()
        particles = steer_sync(lm, PROMPTS[task], rule, N_PARTICLES, MAX_TOKENS[task], seed=seed)
        alive = [p for p, w in zip(particles, particles.log_weights, strict=True) if w > -float("inf")]
        return sum(p.context.token_count for p in particles), [str(p) for p in alive]

    return run


def outlines_runs(folder: str, task: str) -> Run:
    """outlines: one batch of twenty, masked."""
    import outlines
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    model = outlines.from_transformers(AutoModelForCausalLM.from_pretrained(folder), tokenizer)
    rule = outlines.json_schema(json.dumps(SCHEMA)) if task == "json" else outlines.regex(IPV4)
    generator = outlines.Generator(model, rule)

    def run(seed: int) -> tuple[int, list[str]]:
        torch.manual_seed(seed)
        texts = generator.batch(
            [PROMPTS[task]] * N_PARTICLES, max_new_tokens=MAX_TOKENS[task], do_sample=True, top_k=0
        )
        # Its texts as the tokenizer splits them, and an end token each: it does not say how many it drew.
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) + 1 for text in texts), texts

    return run


def genlm_runs(folder: str, task: str) -> Run:
    """genlm-control: adaptive weighted rejection sampling."""
    from genlm.control import AWRS, BoolFSA, JsonSchema, PromptedLLM

    llm = PromptedLLM.from_name(folder, backend="hf", temperature=1.0)
    llm.prompt_ids = llm.model.tokenizer.encode(PROMPTS[task])
    rule = JsonSchema(SCHEMA) if task == "json" else BoolFSA.from_regex(IPV4)
    sampler = AWRS(llm, rule.coerce(llm, f=b"".join))

    def run(seed: int) -> tuple[int, list[str]]:
        import numpy as np

        np.random.seed(seed)
        sequences = asyncio.run(
            sampler.smc(n_particles=N_PARTICLES, ess_threshold=0.5, max_tokens=MAX_TOKENS[task])
        )
        texts = [text for text, p in sequences.decoded_posterior.items() if p > 0]
        return sum(len(context) for context in sequences.contexts), texts

    return run


LIBRARIES: dict[str, Callable[[str, str], Run]] = {
    "hfppl": hfppl_runs,
    "outlines": outlines_runs,
    "genlm": genlm_runs,
}


def main() -> None:
    """Run as told by the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("model")
    parser.add_argument("task", choices=PROMPTS)
    parser.add_argument("n_runs", type=int)
    arguments = parser.parse_args()
    run = LIBRARIES[arguments.library](arguments.model, arguments.task)
    results: list[dict[str, Any]] = []
    for seed in range(arguments.n_runs):
        start = time.perf_counter()
        n_tokens, texts = run(seed)
        results.append({"seconds": time.perf_counter() - start, "tokens": n_tokens, "texts": texts})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
