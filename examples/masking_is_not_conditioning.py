"""How far a mask is from the truth, and how near sequential Monte Carlo comes.

The idea: here the truth can be had. The rule is that three adjectives each stand before a noun with the same
initial, all from a short list, and none twice. That leaves 4800 texts, so `enumerate_exact` finds the
probability of every one of them, under the language model and given the rule. Whatever claims to sample
under this rule can be held against that.

A mask on the next token never breaks the rule, and pays nothing for obeying it: it likes to begin with
"small", and then has to write "spider" or "soldier", whatever the language model thinks of them. Where the
mask is observed instead, words are drawn in the same way, and the particle is weighted by the probability of
what the mask lets through. That weight is the whole difference: importance sampling is masking with weights,
and SMC also resamples by them between the phrases.

Distances are total variation: the share of the probability that lies on the wrong texts, from 0 to 1. An
estimate from N texts is never at 0, not even if they are drawn from the posterior itself ("perfect draws").
It takes five minutes on two busy cores, and as much as ten gigabytes of memory.

    python examples/masking_is_not_conditioning.py --seeds 5 --output masking.svg
"""

import argparse
import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hfppl import (
    CachedCausalLM,
    LMContext,
    Model,
    Particles,
    Token,
    enumerate_exact,
    importance_sampling,
    smc_standard,
)

MASKING, IMPORTANCE, SMC, PERFECT = "masking alone", "importance sampling", "SMC", "perfect draws"
OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "masking.svg"

Law = dict[str, float]  # from texts to their probabilities


@dataclass(frozen=True)
class Rule:
    """The words, each one token with a space before it, and what stands between the phrases."""

    prompt: str = "Once upon a time there was a"
    adjectives: str = "small sad great gentle big brave wise wild little lonely"
    nouns: str = "soldier spider giant girl bear boy woman wolf lion lady"
    between: Sequence[str] = (", a", " and a")


class Alliteration(Model):
    """A phrase a step: an adjective, and a noun with the same initial."""

    def __init__(self, lm: CachedCausalLM, rule: Rule, masking_alone: bool = False) -> None:
        super().__init__()
        self.context = LMContext(lm, rule.prompt)
        self.adjectives = word_ids(lm, rule.adjectives)
        self.nouns = word_ids(lm, rule.nouns)
        self.between = [lm.tokenizer.encode(text, add_special_tokens=False) for text in rule.between]
        self.masking_alone = masking_alone

    async def step(self) -> None:
        adjective = await self.one_of(self.adjectives)
        noun = await self.one_of([i for i in self.nouns if self.initial(i) == self.initial(adjective)])
        self.adjectives.remove(adjective)
        self.nouns.remove(noun)
        if not self.between:
            self.finish()
            return
        for token_id in self.between.pop(0):
            await self.one_of([token_id])

    async def one_of(self, allowed: list[int]) -> Token:
        mask = self.context.mask_dist(allowed)
        if self.masking_alone:
            await self.intervene(mask, True)  # the same mask, and no weight
        else:
            await self.observe(mask, True)
        return await self.sample(self.context.next_token())

    def initial(self, word: int | Token) -> str:
        return self.context.lm.vocab[int(word)].strip()[0]


def word_ids(lm: CachedCausalLM, words: str) -> list[int]:
    ids = [lm.tokenizer.encode(f" {word}", add_special_tokens=False) for word in words.split()]
    if not all(len(pieces) == 1 for pieces in ids):
        raise SystemExit(f"for this language model, one of these words is more than one token: {words}")
    return [pieces[0] for pieces in ids]


@dataclass
class Comparison:
    """The exact answers, and how far from the posterior the estimates are.

    one_run[method][n] is the mean distance of the runs with n particles, pooled[method][n] the distance of
    all these runs taken together, and log_z_estimate[method][n] the log of their mean estimate of Z.
    """

    posterior: Law
    masked: Law
    log_z: float
    n_runs: int
    one_run: dict[str, dict[int, float]] = field(default_factory=dict)
    pooled: dict[str, dict[int, float]] = field(default_factory=dict)
    log_z_estimate: dict[str, dict[int, float]] = field(default_factory=dict)

    @property
    def masking_distance(self) -> float:
        """Of masking alone, however many texts are drawn."""
        return distance(self.posterior, self.masked)

    def add(self, method: str, n: int, estimates: Sequence[Law], ratios: Sequence[float]) -> None:
        """Some runs: what they say of the posterior, and their estimates of Z, divided by Z."""
        distances = [distance(self.posterior, estimate) for estimate in estimates]
        self.one_run.setdefault(method, {})[n] = float(np.mean(distances))
        self.pooled.setdefault(method, {})[n] = distance(self.posterior, pool(estimates, ratios))
        self.log_z_estimate.setdefault(method, {})[n] = self.log_z + math.log(np.mean(ratios))


def distance(truth: Law, estimate: Law) -> float:
    """Total variation: what the estimate lacks where the truth has more."""
    return sum(max(0.0, p - estimate.get(text, 0.0)) for text, p in truth.items())


def pool(estimates: Sequence[Law], ratios: Sequence[float]) -> Law:
    """One estimate from several runs, each counting as much as its estimate of Z."""
    pooled: Law = {}
    for estimate, ratio in zip(estimates, ratios, strict=True):
        for text, p in estimate.items():
            pooled[text] = pooled.get(text, 0.0) + p * ratio / sum(ratios)
    return pooled


def frequencies(texts: Iterable[str]) -> Law:
    counts = Counter(texts)
    return {text: count / counts.total() for text, count in counts.items()}


async def compare(lm: CachedCausalLM, rule: Rule, sizes: Sequence[int], n_runs: int) -> Comparison:
    """The exact posterior, and all the estimates of it."""
    model = Alliteration(lm, rule)
    exact = await enumerate_exact(model)
    masked = await enumerate_exact(Alliteration(lm, rule, masking_alone=True))
    result = Comparison(exact.posterior(), masked.posterior(), exact.log_marginal_likelihood, n_runs)
    texts, probabilities = list(result.posterior), list(result.posterior.values())

    def add(method: str, n: int, runs: Sequence[Particles]) -> None:
        ratios = [math.exp(particles.log_marginal_likelihood - result.log_z) for particles in runs]
        result.add(method, n, [particles.posterior() for particles in runs], ratios)

    for n in sizes:
        drawn = [await importance_sampling(model, n, seed=seed, progress=False) for seed in range(n_runs)]
        # Masking draws the same particles. It does not weight them.
        result.add(MASKING, n, [frequencies(map(str, particles)) for particles in drawn], [1.0] * n_runs)
        add(IMPORTANCE, n, drawn)
        add(SMC, n, [await smc_standard(model, n, seed=seed, progress=False) for seed in range(n_runs)])
        rng = np.random.default_rng(n)
        perfect = [rng.choice(len(texts), n, p=probabilities) for _ in range(n_runs)]
        result.add(PERFECT, n, [frequencies(texts[i] for i in run) for run in perfect], [1.0] * n_runs)
    return result


def main(
    argv: list[str] | None = None, lm: CachedCausalLM | None = None, rule: Rule | None = None
) -> Comparison:
    parser = argparse.ArgumentParser(
        description="Hold masking, importance sampling and SMC against the truth."
    )
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, nargs="+", default=[5, 20, 100, 500])
    parser.add_argument(
        "--seeds", type=int, default=20, help="runs of each method with each number of particles"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the picture goes, an SVG file")
    options = parser.parse_args(argv)

    began = time.perf_counter()
    # Room for the logits after every beginning of a text, some 4000, so that none is computed twice.
    lm = lm or CachedCausalLM.from_pretrained(options.model, row_cache_bytes=1 << 30)
    rule = rule or Rule()
    result = asyncio.run(compare(lm, rule, sorted(options.n_particles), options.seeds))
    show(result, rule)
    options.output.write_text(picture(result), encoding="utf-8")
    print(f"\nThe picture is in {options.output.name}. All this took {time.perf_counter() - began:.0f} s.")
    return result


def show(result: Comparison, rule: Rule) -> None:
    posterior, masked = result.posterior, result.masked
    print(f"{rule.prompt} ... {len(posterior)} texts obey the rule.\n\n  exact  masking")
    for text in dict.fromkeys([*list(posterior)[:6], *list(masked)[:6]]):
        print(f"{posterior.get(text, 0.0):7.2%}  {masked.get(text, 0.0):7.2%}  ...{text}")

    sizes = list(result.one_run[SMC])
    print("\nTotal-variation distance to the exact posterior\n")
    print(f"{'number of particles':37}" + "".join(f"{n:7}" for n in sizes))
    for method in (MASKING, IMPORTANCE, SMC, PERFECT):
        line(f"{method:22}one run", result.one_run[method])
        line(f"{'':22}{result.n_runs} runs pooled", result.pooled[method])
        if method is MASKING:
            line(f"{'':22}without end", dict.fromkeys(sizes, result.masking_distance))
    print(f"\nlog Z, exactly {result.log_z:.3f}; the mean of {result.n_runs} runs:\n")
    for method in (IMPORTANCE, SMC):
        line(f"{method:37}", result.log_z_estimate[method])


def line(label: str, numbers: dict[int, float]) -> None:
    print(
        f"{label:37}" + "".join(f"{number:7.{3 if abs(number) < 10 else 2}f}" for number in numbers.values())
    )


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 740, 345, 60, 520, 50, 290
STYLES = {  # colours that show on white and on black, and dashes for who cannot tell them apart
    MASKING: "stroke:#e5534b;stroke-width:3",
    IMPORTANCE: "stroke:#b7791f;stroke-width:2;stroke-dasharray:9 5",
    SMC: "stroke:#2f81f7;stroke-width:3",
    PERFECT: "stroke:#7d8590;stroke-width:2;stroke-dasharray:2 4",
}


def picture(result: Comparison) -> str:
    """The distance of one run, over the number of particles, as SVG."""
    sizes = list(result.one_run[SMC])
    curves = {method: result.one_run[method] for method in (IMPORTANCE, SMC, PERFECT)}
    curves[MASKING] = dict.fromkeys(sizes, result.masking_distance)
    span = math.log(sizes[-1] / sizes[0]) or 1.0

    def x(n: int) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(n / sizes[0]) / span

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value

    summary = ", ".join(f"{method} {curve[sizes[-1]]:.2f}" for method, curve in curves.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14" fill="#7d8590">',
        "<title>How far the estimates are from the exact posterior</title>",
        f"<desc>Total-variation distance with {sizes[-1]} particles: {summary}.</desc>",
        f'<text x="{LEFT - 40}" y="24" font-size="15">'
        "Distance to the exact posterior (total variation; one run, on average)</text>",
    ]
    for value in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            f'<path d="M{LEFT} {y(value):.1f}H{RIGHT}" stroke="#7d8590" stroke-opacity=".3"/>',
            f'<text x="{LEFT - 8}" y="{y(value) + 5:.1f}" text-anchor="end">{value:g}</text>',
        ]
    parts += [f'<text x="{x(n):.1f}" y="{BOTTOM + 22}" text-anchor="middle">{n}</text>' for n in sizes]
    parts += [f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 44}" text-anchor="middle">particles</text>']

    floor = BOTTOM + 22.0  # of the next label: no two on top of each other
    for method, curve in sorted(curves.items(), key=lambda item: item[1][sizes[-1]]):
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in curve.items())
        style = STYLES[method]
        colour = style.split(";")[0].removeprefix("stroke:")
        floor = min(floor - 18, y(curve[sizes[-1]]) + 5)
        parts.append(f'<polyline points="{points}" fill="none" style="{style}"/>')
        if method is not MASKING:
            parts += [
                f'<circle cx="{x(n):.1f}" cy="{y(value):.1f}" r="4" fill="{colour}"/>'
                for n, value in curve.items()
            ]
        label = f"{method} {curve[sizes[-1]]:.2f}"
        parts.append(f'<text x="{RIGHT + 12}" y="{floor:.1f}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()
