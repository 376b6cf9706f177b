"""Measure and write `benchmarks/results.md`: `make bench`, or `python -m benchmarks [NAME ...]`."""

import argparse
import itertools
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch

import hfppl
from hfppl import CachedCausalLM
from hfppl.constraints import JsonSchema, Regex
from hfppl.llms.default_model import default_model_path

from . import bookkeeping, scaling
from .constrained import IPV4, MAX_TOKENS, SCHEMA
from .floor import floor, generate
from .hard_constraints import N_PARTICLES, N_TOKENS, PROMPT, masks_of, run
from .timing import Ratio, ratio, take_turns

HERE = Path(__file__).parent
PEER_PYTHON = Path(os.environ.get("HFPPL_PEER_PYTHON", HERE.parent / ".venv-peers/bin/python"))
PEER_SECONDS = 600  # what another library gets for its twenty texts
Row = tuple[str, str, str]  # what, the aim, what was found


@cache
def language_model(fast: bool) -> CachedCausalLM:
    """The default model, with the fitted linear kernels or with PyTorch's own."""
    return CachedCausalLM.from_pretrained(fast_linear=None if fast else False)


def hard_constraints(n_rounds: int) -> Iterator[Row]:
    """SMC under a constraint beside the bare transformer and transformers' own `generate`."""
    plain, fitted = language_model(fast=False), language_model(fast=True)
    prompt = plain.tokenizer.encode(PROMPT)
    rng = random.Random(0)
    columns = [rng.sample(range(1000, 40000), N_PARTICLES) for _ in range(N_TOKENS)]
    masks = masks_of(plain)
    seeds = iter(range(10**6))
    sides: dict[str, Callable[[], float]] = {
        "floor": lambda: sum(floor(plain.model, prompt, columns)),
        "smc, plain": lambda: run(hfppl, plain, masks, False, next(seeds)),
        "smc": lambda: run(hfppl, fitted, masks, False, next(seeds)),
        "generate": lambda: generate(plain.model, prompt, N_PARTICLES, N_TOKENS),
    }
    seconds = take_turns(sides, n_rounds)
    what = f"hard constraints, N={N_PARTICLES}, {N_TOKENS} tokens, {len(prompt)}-token prompt: "
    yield (
        what + "SMC over the floor, same linear kernels",
        ">= 0.95",
        str(ratio(seconds, "smc, plain", "floor")),
    )
    yield what + "SMC over the floor, default kernels", ">= 2.0", str(ratio(seconds, "smc", "floor"))
    yield what + "SMC over unconstrained `generate`", ">= 4", str(ratio(seconds, "smc", "generate"))


def llamppl(n_rounds: int) -> Iterator[Row]:
    """The same script on llamppl, from PyPI, in an environment of its own."""
    for cached, aim in ((True, ">= 12"), (False, ">= 80")):
        name = f"hard constraints: SMC over llamppl 0.2.3, {'with `cache_kv`' if cached else 'as it comes'}"
        if not PEER_PYTHON.exists():
            yield name, aim, f"not measured: no {PEER_PYTHON}"
            continue
        rounds = []
        for _ in range(n_rounds if cached else 1):
            theirs = in_environment(PEER_PYTHON, "llamppl", cached)
            ours = in_environment(Path(sys.executable), "hfppl", cached)
            rounds.append(theirs / ours)
        yield name, aim, str(Ratio(tuple(rounds)))


def in_environment(python: Path, module: str, cached: bool) -> float:
    """Seconds of the second run of two; the first warms up."""
    arguments = [module, str(default_model_path()), "2" if cached or module == "hfppl" else "1"]
    found = script(python, "hard_constraints.py", *arguments, *(["--cache-prompt"] if cached else []))
    return float(found[-1])


def script(python: Path, name: str, *arguments: str, limit: float | None = None) -> Any:
    """What a script of this folder prints last, as JSON; None if it was stopped after `limit` seconds."""
    command = [str(python), str(HERE / name), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def constrained(n_rounds: int) -> Iterator[Row]:
    """A JSON object and an IPv4 address, beside outlines and genlm-control."""
    aims = {("json", "outlines"): ">= 2.5", ("json", "genlm"): ">= 25", ("ipv4", "outlines"): ">= 2.5"}
    names = {"outlines": "outlines 1.3.3", "genlm": "genlm-control 0.4.1"}
    tasks = {"json": "JSON object", "ipv4": "IPv4 address"}
    valid: dict[str, list[bool]] = {}
    folder = str(default_model_path())

    def tokens_per_second(library: str, task: str, n_runs: int) -> float | None:
        """In the last of some runs; the first also warms up, and builds what the rule needs."""
        python = Path(sys.executable) if library == "hfppl" else PEER_PYTHON
        runs = script(python, "constrained.py", library, folder, task, str(n_runs), limit=PEER_SECONDS)
        if runs is None:
            return None
        checks = valid.setdefault(f"{library}, {task}", [])
        checks += [is_valid(task, text) for text in runs[-1]["texts"]]
        return float(runs[-1]["tokens"] / runs[-1]["seconds"])

    for (task, task_name), (peer, peer_name) in itertools.product(tasks.items(), names.items()):
        name = f"{task_name}, N=20: tokens/s over those of {peer_name}"
        if not PEER_PYTHON.exists():
            yield name, aims.get((task, peer), ""), f"not measured: no {PEER_PYTHON}"
            continue
        # The second peer takes minutes for a text: it is run once.
        n_rounds_here, n_runs = (n_rounds, 2) if peer == "outlines" else (1, 1)
        pairs = []
        for _ in range(n_rounds_here):
            theirs = tokens_per_second(peer, task, n_runs)
            pairs.append((tokens_per_second("hfppl", task, 2), theirs))
        ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
        if ratios:
            found = str(Ratio(tuple(ratios)))
        else:
            most = N_PARTICLES * MAX_TOKENS[task] / PEER_SECONDS
            least = min(ours for ours, _ in pairs if ours) / most
            found = f"over {least:.0f} (not done after {PEER_SECONDS} s)"
        yield name, aims.get((task, peer), ""), found
    for what, checks in valid.items():
        yield (
            f"texts that obey the rule: {what}",
            "all" if "hfppl" in what else "",
            f"{sum(checks)} of {len(checks)}",
        )


def is_valid(task: str, text: str) -> bool:
    """Whether a text obeys the rule of a task."""
    if task == "ipv4":
        return re.fullmatch(IPV4, text) is not None
    try:
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def masks(n_rounds: int) -> Iterator[Row]:
    """What a grammar's mask costs, a step of a particle's."""
    lm = CachedCausalLM.from_pretrained(backend="mock")
    for name, rule in (("JSON object", JsonSchema(SCHEMA)), ("IPv4", Regex(IPV4))):
        found = [bookkeeping.microseconds_per_mask(lm, rule) for _ in range(max(5, n_rounds))]
        text = f"{statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})"
        yield f"mask and advance a step, microseconds, {name}, V=49,152", "", text


def long_prompt(n_rounds: int) -> Iterator[Row]:
    """A prompt of 2,000 tokens and 40 particles."""
    found: dict[str, list[dict[str, float]]] = {"floor": [], "engine": [], "engine-plain-linears": []}
    for _ in range(n_rounds):
        for side, results in found.items():
            command = [sys.executable, "-m", "benchmarks.long_prompt", side, "2000", "40", "10"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE.parent)
            results.append(json.loads(done.stdout))

    def compare(side: str, what: str) -> str:
        pairs = zip(found["floor"], found[side], strict=True)
        return str(Ratio(tuple(base[what] / own[what] for base, own in pairs)))

    name = "prompt of 2,000 tokens, N=40: "
    yield name + "decoding step, floor over engine", ">= 8", compare("engine", "step")
    yield name + "the same, same linear kernels", "", compare("engine-plain-linears", "step")
    yield (
        name + "peak extra memory, floor over engine",
        ">= 5",
        compare("engine-plain-linears", "extra_bytes"),
    )


def bookkeeping_rows(n_rounds: int) -> Iterator[Row]:
    """Everything but the transformer."""
    for size, aim in ((49_152, "<= 120"), (262_144, "")):
        found = bookkeeping.microseconds_per_particle_step(size, max(5, n_rounds))
        text = f"{statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})"
        yield f"bookkeeping per particle step, microseconds of processor time, V={size:,}", aim, text


def growth(n_rounds: int) -> Iterator[Row]:
    """Long runs, large populations, second runs."""
    lm = language_model(fast=True)
    late = [scaling.late_over_early(lm, 10, 1000, 100) for _ in range(max(1, n_rounds // 2))]
    yield "cost of a step at token 1,000 over one at token 100, N=10", "", str(Ratio(tuple(late)))
    before = scaling.peak_megabytes()
    rounds = []
    for _ in range(max(1, n_rounds // 2)):
        small = scaling.tokens_per_second(lm, 80, 20)
        rounds.append(scaling.tokens_per_second(lm, 1000, 20) / small)
    yield "tokens/s at N=1,000 over those at N=80, 20 tokens", ">= 1", str(Ratio(tuple(rounds)))
    yield "the same: peak memory beyond that before, MB", "", f"{scaling.peak_megabytes() - before:.0f}"
    prompt = lm.tokenizer.encode(PROMPT)
    pairs = [
        (scaling.first_step_seconds(lm, prompt, True), scaling.first_step_seconds(lm, prompt, False))
        for _ in range(n_rounds + 1)
    ][1:]
    text = str(Ratio(tuple(first / second for first, second in pairs)))
    yield "time to the end of the first step, first run over second run from the same prompt", "", text


MEASURES: dict[str, Callable[[int], Iterator[Row]]] = {
    "bookkeeping": bookkeeping_rows,
    "hard_constraints": hard_constraints,
    "long_prompt": long_prompt,
    "growth": growth,
    "llamppl": llamppl,
    "constrained": constrained,
    "masks": masks,
}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(MEASURES)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=HERE / "results.md")
    arguments = parser.parse_args()
    rows = {row[0]: row for row in earlier_rows(arguments.output)}
    for name in arguments.names or MEASURES:
        for row in MEASURES[name](arguments.rounds):
            print(" | ".join(row), flush=True)
            rows[row[0]] = row
            arguments.output.write_text(table(list(rows.values())))


def earlier_rows(page: Path) -> list[Row]:
    """The rows of a page written before: a run of some measures leaves the others as they were."""
    if not page.exists():
        return []
    cells = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    return [(what, aim.strip(), found) for what, aim, found in cells if what != "measure"]


def table(rows: list[Row]) -> str:
    """The results as a page."""
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench` (`python -m benchmarks`; with the name of a measure, it alone is made anew):",
        "both sides of a ratio in turn, in one run; median, and range over the rounds. Ratios carry from",
        "machine to machine; times do not.",
        "The language model is the default one, in float32 on a CPU.",
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads, numpy {np.__version__}, Python {platform.python_version()}.",
        "",
        "| measure | aim | found |",
        "|---|---|---|",
        *(f"| {what} | {aim} | {found} |" for what, aim, found in rows),
        "",
    ]
    notes = HERE / "notes.md"
    return "\n".join(lines) + ("\n" + notes.read_text() if notes.exists() else "")


if __name__ == "__main__":
    main()
