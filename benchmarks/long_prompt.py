"""A long prompt and many particles: decoding steps, and the memory they take, of one side a process.

    python -m benchmarks.long_prompt SIDE N_TOKENS_OF_PROMPT N_PARTICLES N_STEPS

prints {"step": median seconds of a step, "extra_bytes": peak memory beyond that of the loaded model}.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

from hfppl.llms.default_model import default_model_path
from hfppl.llms.hf import HFBackend
from hfppl.llms.hf_loading import load_pretrained
from hfppl.llms.prefix import Prefix

from .floor import floor


def main() -> None:
    """Run one side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=["floor", "engine", "engine-plain-linears"])
    parser.add_argument("prompt", type=int)
    parser.add_argument("particles", type=int)
    parser.add_argument("steps", type=int)
    arguments = parser.parse_args()
    rng = random.Random(0)
    prompt = [rng.randrange(1000, 40000) for _ in range(arguments.prompt)]
    columns = [rng.sample(range(1000, 40000), arguments.particles) for _ in range(arguments.steps)]
    model, _ = load_pretrained(default_model_path(), device="cpu")
    if arguments.side == "floor":
        floor(model, prompt[:10], columns[:1])
        before = start_watching()
        seconds = floor(model, prompt, columns)[1:]
    else:
        backend = HFBackend(model, fast_linear=None if arguments.side == "engine" else False)
        backend.evaluate([Prefix.root().descend(prompt[:10])])
        backend.clear()
        before = start_watching()
        seconds = engine(backend, prompt, columns)
    json.dump({"step": statistics.median(seconds), "extra_bytes": peak_bytes() - before}, sys.stdout)


def engine(backend: HFBackend, prompt: list[int], columns: list[list[int]]) -> list[float]:
    """Seconds of each step of N continuations, asked for as the language model asks."""
    root = Prefix.root().descend(prompt)
    backend.evaluate([root])
    particles = [root] * len(columns[0])
    seconds = []
    for column in columns:
        start = time.perf_counter()
        particles = [particle.child(token) for particle, token in zip(particles, column, strict=True)]
        backend.evaluate(particles)
        seconds.append(time.perf_counter() - start)
    return seconds


def start_watching() -> int:
    """Bytes held now; what was held before no longer counts as a peak. Linux only."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def peak_bytes() -> int:
    """The most bytes held since `start_watching`."""
    return status_bytes("VmHWM")


def status_bytes(name: str) -> int:
    """An entry of the process's status that counts memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
