"""The engine beside the bare transformer: tokens per second of each, in turn, in one run.

The floor is what one would write by hand for N continuations of one prompt: prefill once, copy the cache
for each, then batched forward passes and a log-softmax, nothing else. The engine does the same work
through `HFBackend.evaluate`, which knows nothing of the batch but its prefixes.

    python benchmarks/engine_floor.py [--prompt 118] [--particles 20] [--tokens 30] [--rounds 5]
        [--resample-every 0] [--random-weights]

Ratios of one run mean something; tokens per second of one machine at one hour do not.
"""

import argparse
import random
import statistics
import time
from typing import Any

import torch
import transformers

from hfppl.llms.hf import HFBackend
from hfppl.llms.hf_forward import CausalForward
from hfppl.llms.prefix import Prefix


def floor_run(
    model: Any, prompt: list[int], columns: list[list[int]], ancestors: list[list[int]]
) -> list[float]:
    """Seconds of the prefill, then of each step."""
    seconds = []
    n_particles = len(columns[0])
    name = CausalForward(model).cache_argument or "past_key_values"
    with torch.inference_mode():
        start = time.perf_counter()
        cache = transformers.DynamicCache()
        out = model(torch.tensor([prompt]), **{name: cache}, use_cache=True, logits_to_keep=1)
        torch.log_softmax(out.logits[:, -1].float(), -1)
        cache.batch_repeat_interleave(n_particles)
        seconds.append(time.perf_counter() - start)
        for column, chosen in zip(columns, ancestors, strict=True):
            start = time.perf_counter()
            if chosen != list(range(n_particles)):
                cache.batch_select_indices(torch.tensor(chosen))
            out = model(torch.tensor(column)[:, None], **{name: cache}, use_cache=True, logits_to_keep=1)
            torch.log_softmax(out.logits[:, -1].float(), -1).numpy()
            seconds.append(time.perf_counter() - start)
    return seconds


def engine_run(
    backend: HFBackend, prompt: list[int], columns: list[list[int]], ancestors: list[list[int]]
) -> list[float]:
    """Seconds of the prefill, then of each step."""
    backend.clear()
    start = time.perf_counter()
    root = Prefix.root().descend(prompt)
    backend.evaluate([root])
    seconds = [time.perf_counter() - start]
    particles = [root] * len(columns[0])
    for column, chosen in zip(columns, ancestors, strict=True):
        start = time.perf_counter()
        particles = [particles[index].child(token) for index, token in zip(chosen, column, strict=True)]
        rows = backend.evaluate(list(dict.fromkeys(particles)))
        for row in rows:
            torch.log_softmax(torch.from_numpy(row), -1)
        seconds.append(time.perf_counter() - start)
    return seconds


def load(random_weights: bool) -> Any:
    """The default model, or one of the same size with random weights."""
    if random_weights:
        config = transformers.LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
            num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
            tie_word_embeddings=True,
        )  # fmt: skip
        return transformers.LlamaForCausalLM(config).eval()
    from hfppl.llms.default_model import default_model_path
    from hfppl.llms.hf_loading import load_pretrained

    return load_pretrained(default_model_path(), device="cpu")[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prompt", type=int, default=118)
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--resample-every", type=int, default=0)
    parser.add_argument("--random-weights", action="store_true")
    arguments = parser.parse_args()
    n_particles, n_tokens = arguments.particles, arguments.tokens
    rng = random.Random(0)
    prompt = [rng.randrange(1000, 40000) for _ in range(arguments.prompt)]
    # Distinct tokens in a column: the same work on both sides, as equal prefixes are evaluated once.
    columns = [rng.sample(range(1000, 40000), n_particles) for _ in range(n_tokens)]
    same = list(range(n_particles))
    every = arguments.resample_every
    ancestors = [
        sorted(rng.choices(same, k=n_particles)) if every and step and step % every == 0 else same
        for step in range(n_tokens)
    ]
    model = load(arguments.random_weights)
    sides = {
        "floor": lambda: floor_run(model, prompt, columns, ancestors),
        "engine, plain linears": lambda: engine_run(plain, prompt, columns, ancestors),
        "engine, default": lambda: engine_run(packed, prompt, columns, ancestors),
    }
    plain = HFBackend(model, fast_linear=False)
    packed = HFBackend(model)
    print(f"{packed.path_description}; threads: {torch.get_num_threads()}")
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            taken = side()
            seconds[name].append((sum(taken), sum(taken[1:])))
    for index, what in enumerate(("prefill and decoding", "decoding alone")):
        print(f"\n{what}, ratio to the floor in the same round: median (range)")
        for name, taken in seconds.items():
            pairs = zip(seconds["floor"], taken, strict=True)
            ratios = sorted(base[index] / own[index] for base, own in pairs)
            speed = n_particles * n_tokens / statistics.median(own[index] for own in taken)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"  {name:24} {spread:24} {speed:.0f} tokens/s here")


if __name__ == "__main__":
    main()
