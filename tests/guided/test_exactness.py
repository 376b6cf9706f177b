"""Guided generation against the exact target: posterior and Z for every kind of constraint."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hfppl import CachedCausalLM, GuidedModel, LMContext, Model, enumerate_exact, smc_standard
from hfppl.constraints import And, Choice, Constraint, Lark, Predicate, Regex, TokenLimit
from hfppl.guided import next_allowed_token
from hfppl.guided.rejection import draw_allowed

from .enumerated import ENDS, VOCAB, V, language_model, probs, text_of, to_boundary, to_end_token

LM = language_model()


def full(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


def few_as(text: str) -> bool:
    return text.count("a") <= 2 and "bb" not in text


KINDS: dict[str, tuple[Constraint, Callable[[str], bool]]] = {
    "regex": (Regex("(ab|😀)*b?"), full("(ab|😀)*b?")),
    "star": (Regex("a*"), full("a*")),
    "bounded": (Regex("a{1,3}"), full("a{1,3}")),
    "anything": (Regex("(?s:.)*"), lambda text: True),
    "prefixes of each other": (
        Choice(["a", "ab", "aba", "😀b", ""]),
        lambda text: text in ("a", "ab", "aba", "😀b", ""),
    ),
    "dead ends": (Choice(["ax", "aba", "b😃"]), lambda text: text == "aba"),
    "recursion": (
        Lark('start: "a" start "b" | "ab" | '),
        lambda text: full("a*b*")(text) and text.count("a") == text.count("b"),
    ),
    "complement": (~Choice(["ab", "b", ""]), lambda text: text not in ("ab", "b", "")),
    "both": (Regex("[ab]*") & ~Regex(".*bb.*"), lambda text: full("[ab]*")(text) and "bb" not in text),
    "few tokens": (Regex("[ab]*") & TokenLimit(2), full("[ab]*")),  # the limit is seen to below
    "predicate": (Predicate(lambda text: "bb" not in text), lambda text: "bb" not in text),
    "predicate, complete": (
        Predicate(few_as, lambda text: few_as(text) and text.endswith("b")),
        lambda text: few_as(text) and text.endswith("b"),
    ),
    "predicate and regex": (
        Predicate(few_as) & Regex("(ab|a|b)+"),
        lambda text: few_as(text) and full("(ab|a|b)+")(text),
    ),
    "neither": (~Predicate(few_as), lambda text: not few_as(text)),
}


def exact_of(kind: str, max_tokens: int, temp: float = 1.0) -> dict[str, float]:
    return to_end_token(KINDS[kind][1], 3 if kind == "few tokens" else max_tokens, temp=temp)


def assert_equal(particles: Any, exact: dict[str, float]) -> None:
    z = math.fsum(exact.values())
    assert math.isclose(math.exp(particles.log_marginal_likelihood), z, rel_tol=1e-9)
    posterior = particles.posterior()
    assert set(posterior) == set(exact)
    for text, p in exact.items():
        assert math.isclose(posterior[text], p / z, rel_tol=1e-9), text


@pytest.mark.parametrize("kind", KINDS)
async def test_enumeration_of_the_model_is_enumeration_by_hand(kind: str) -> None:
    exact = exact_of(kind, 4)
    assert exact, "the case must have a text"
    assert_equal(await enumerate_exact(GuidedModel(LM, "", KINDS[kind][0], 4)), exact)


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
@pytest.mark.parametrize("kind", ["star", "prefixes of each other", "predicate"])
async def test_the_limit_counts_the_end_token(kind: str, max_tokens: int) -> None:
    particles = await enumerate_exact(GuidedModel(LM, "", KINDS[kind][0], max_tokens))
    assert_equal(particles, exact_of(kind, max_tokens))


async def test_temperature() -> None:
    particles = await enumerate_exact(GuidedModel(LM, "", KINDS["regex"][0], 4, temp=0.5))
    assert_equal(particles, exact_of("regex", 4, temp=0.5))


async def test_a_critic_multiplies_the_target() -> None:
    exact = {text: p * 2.0 ** text.count("a") for text, p in exact_of("regex", 4).items()}
    model = GuidedModel(LM, "", KINDS["regex"][0], 4, critic=lambda text: text.count("a") * math.log(2))
    assert_equal(await enumerate_exact(model), exact)


# --- what is drawn

N, RUNS = 30, 40


def guided(**options: Any) -> Callable[[Constraint, int], Model]:
    return lambda constraint, max_tokens: GuidedModel(LM, "", constraint, max_tokens, **options)


class ByHand(Model):
    """The step that a user would write."""

    def __init__(self, constraint: Constraint, max_tokens: int) -> None:
        super().__init__()
        self.context = LMContext(LM, "", show_eos=False)
        self.state = constraint.start(self.context)
        self.max_tokens = max_tokens

    async def step(self) -> None:
        token = await self.call(next_allowed_token(self.context, self.state))
        if token in LM.masks.EOS:
            self.finish()
        elif self.context.token_count == self.max_tokens:
            self.condition(False)


class Judge:
    """A critic of many texts at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def batch(self, texts: list[str]) -> list[float]:
        self.sizes.append(len(texts))
        return [text.count("a") * math.log(2) for text in texts]


async def judge(text: str) -> float:
    return text.count("a") * math.log(2)


def flattened(logprobs: np.ndarray) -> np.ndarray:
    return logprobs * 0.5


DRAWN: dict[str, tuple[str, Callable[[Constraint, int], Model], bool]] = {
    "masks": ("regex", guided(), False),
    "limit": ("bounded", guided(), False),
    "rejection": ("predicate, complete", guided(), False),
    "rejection, cut short": ("predicate, complete", guided(max_tests=2), False),
    "rejection under a grammar": ("predicate and regex", guided(), False),
    "by hand": ("predicate", ByHand, False),
    "by hand, masks": ("regex", ByHand, False),
    "function proposal": ("regex", guided(proposal=flattened), False),
    "function proposal, rejection": ("predicate, complete", guided(proposal=flattened), False),
    "critic": ("regex", guided(critic=judge), True),
    "critic in batches": ("predicate", guided(critic=Judge()), True),
}


async def mean_measure(
    make: Callable[[], Model], n_particles: int, runs: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """For each run, the unnormalised mass of each text, and the estimate of Z."""
    masses: dict[str, np.ndarray] = {}
    z = np.zeros(runs)
    for run in range(runs):
        particles = await smc_standard(make(), n_particles, seed=run)
        z[run] = math.exp(particles.log_marginal_likelihood)
        for particle, log_weight in zip(particles, particles.log_weights, strict=True):
            if log_weight > -math.inf:
                masses.setdefault(str(particle), np.zeros(runs))[run] += math.exp(log_weight) / n_particles
    return masses, z


def assert_unbiased(masses: dict[str, np.ndarray], z: np.ndarray, exact: dict[str, float]) -> None:
    total = math.fsum(exact.values())
    assert set(masses) <= set(exact)
    se = z.std(ddof=1) / math.sqrt(len(z))
    assert se < 0.05 * total, "too few runs to see an error of a quarter"
    assert abs(z.mean() - total) < 5 * se
    for text, p in sorted(exact.items(), key=lambda pair: -pair[1])[:6]:
        values = masses.get(text, np.zeros(len(z)))
        assert abs(values.mean() - p) < 5 * values.std(ddof=1) / math.sqrt(len(z)), text


@pytest.mark.parametrize("name", DRAWN)
async def test_estimates_are_unbiased(name: str) -> None:
    kind, make, judged = DRAWN[name]
    exact = exact_of(kind, 4)
    if judged:
        exact = {text: p * 2.0 ** text.count("a") for text, p in exact.items()}
    masses, z = await mean_measure(lambda: make(KINDS[kind][0], 4), N, RUNS)
    assert_unbiased(masses, z, exact)


async def test_a_lost_weight_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(row: Any, temperature: float, candidates: Any, *rest: Any) -> Any:
        token_id, log_mass = draw_allowed(row, temperature, candidates, *rest)
        return token_id, log_mass if token_id is None else row.mass(temperature, candidates).log_total

    monkeypatch.setattr("hfppl.guided.next_token.draw_allowed", careless)
    masses, z = await mean_measure(lambda: GuidedModel(LM, "", KINDS["predicate"][0], 4), N, RUNS)
    with pytest.raises(AssertionError):
        assert_unbiased(masses, z, exact_of("predicate", 4))


# --- another language model as proposal


async def test_a_language_model_as_proposal() -> None:
    def next_logits(ids: list[int]) -> np.ndarray:
        return np.log(0.5 * probs(1, tuple(ids)) + 0.5 / V)

    other = CachedCausalLM.from_function(VOCAB, next_logits, sorted(ENDS))
    for kind in ("regex", "predicate, complete"):
        make = guided(proposal=other)
        masses, z = await mean_measure(lambda kind=kind, make=make: make(KINDS[kind][0], 4), 2 * N, RUNS)
        assert_unbiased(masses, z, exact_of(kind, 4))


# --- ending at a boundary


def begins_ab(text: str) -> bool:
    """Whether it begins a text of (ab|😀)*b?, read with surrogateescape."""
    return re.fullmatch(r"(ab|😀)*(a|b|\udcf0\udc9f)?", text) is not None


async def test_a_text_may_end_at_a_boundary() -> None:
    exact = to_boundary(full("(ab|😀)*b?"), begins_ab, 3)
    model = GuidedModel(LM, "", Regex("(ab|😀)*b?"), 3, end="boundary")
    assert_equal(await enumerate_exact(model), exact)
    masses, z = await mean_measure(
        lambda: GuidedModel(LM, "", Regex("(ab|😀)*b?"), 3, end="boundary"), N, RUNS
    )
    assert_unbiased(masses, z, exact)


async def test_a_predicate_may_end_at_a_boundary() -> None:
    def whole(text: str) -> bool:
        return full("(ab|😀)*a?")(text)

    alone = Predicate(whole, lambda text: whole(text) and not text.endswith("a"))
    # A token that the regular expression refuses is not one that the predicate is asked about.
    together = Regex("(ab|😀)*a?") & Predicate(lambda text: True, lambda text: not text.endswith("a"))
    exact = to_boundary(
        lambda text: whole(text) and not text.endswith("a"),
        lambda text: full(r"(ab|😀)*a?(\udcf0\udc9f)?")(text),
        3,
    )
    assert_equal(await enumerate_exact(GuidedModel(LM, "", together, 3, end="boundary")), exact)
    for constraint, options in ((alone, {}), (alone, {"proposal": flattened}), (together, {})):

        def make(constraint: Constraint = constraint, options: dict[str, Any] = options) -> Model:
            return GuidedModel(LM, "", constraint, 3, end="boundary", **options)

        masses, z = await mean_measure(make, N, RUNS)
        assert_unbiased(masses, z, exact)


# --- a healed prompt


@pytest.mark.parametrize("kind", ["regex", "predicate"])
async def test_a_healed_prompt(kind: str) -> None:
    constraint, accepts = KINDS[kind]
    exact: dict[str, float] = {}
    begin = [i for i in range(V) if VOCAB[i].startswith(b"a")]
    mass = sum(probs(1, (1,))[i] for i in begin)
    for n in range(1, 4):
        for ids in itertools.product(range(V - 2), repeat=n):
            if ids[0] not in begin or (text := text_of(ids)) is None or not accepts(text[1:]):
                continue
            p = probs(1, (1,))[ids[0]] / mass
            p *= np.prod([probs(1, (1, *ids[:i]))[ids[i]] for i in range(1, n)])
            p *= sum(probs(1, (1, *ids))[end] for end in ENDS)
            exact[text[1:]] = exact.get(text[1:], 0.0) + float(p)
    exact = {text: p for text, p in exact.items() if p > 0}
    model = GuidedModel(LM, [1, 0], constraint, 4, heal=True)
    assert_equal(await enumerate_exact(model), exact)


def test_and_needs_constraints() -> None:
    with pytest.raises(ValueError, match="at least one"):
        And()
