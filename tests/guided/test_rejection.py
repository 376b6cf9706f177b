"""Adaptive weighted rejection sampling, worked out over every sequence of draws."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from hfppl.guided import rejection
from hfppl.guided.rejection import draw_allowed
from hfppl.logits import LogitsRow

P = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])


class Scripted:
    """Uniforms that make each draw come out as told, the probabilities of which it multiplies."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self._order = iter(order)
        self._left = P.copy()
        self.probability = 1.0
        self.n_drawn = 0

    def random(self) -> float:
        token = next(self._order)
        total = self._left.sum()
        self.probability *= self._left[token] / total
        below = self._left[:token].sum()
        uniform = (below + self._left[token] / 2) / total
        self._left[token] = 0
        self.n_drawn += 1
        return float(uniform)


def outcomes(
    allowed: set[int], candidates: np.ndarray, max_tests: int
) -> Iterator[tuple[int | None, float, float]]:
    """Every outcome: token, mass, and how probable it is."""
    support = [i for i in range(len(P)) if candidates[i]]
    seen: set[tuple[int, ...]] = set()
    for order in itertools.permutations(support):
        rng = Scripted(order)
        rng._left = P * candidates
        token, log_mass = draw_allowed(
            LogitsRow(np.log(P)),
            1.0,
            candidates,
            allowed.__contains__,
            rng,
            max_tests,  # type: ignore[arg-type]
        )
        drawn = order[: rng.n_drawn]
        if drawn not in seen:
            seen.add(drawn)
            yield token, math.exp(log_mass) * P.max(), rng.probability


@pytest.mark.parametrize("max_tests", [1, 2, 3, 100])
@pytest.mark.parametrize("further", [1, 2, 4])
@pytest.mark.parametrize("allowed", [{0}, {5}, {1, 4}, {0, 2, 5}, set(range(6)), set()])
@pytest.mark.parametrize("excluded", [None, 1])
def test_the_token_is_properly_weighted(
    allowed: set[int], max_tests: int, further: int, excluded: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejection, "_FURTHER_TESTS", further)
    candidates = np.ones(len(P))
    if excluded is not None:
        candidates[excluded] = 0
    expected = np.zeros(len(P))
    total = 0.0
    for token, mass, probability in outcomes(allowed, candidates, max_tests):
        total += probability
        if token is not None:
            expected[token] += probability * mass
    assert math.isclose(total, 1.0)
    want = [p if i in allowed and candidates[i] else 0.0 for i, p in enumerate(P)]
    np.testing.assert_allclose(expected, want, rtol=1e-9, atol=1e-12)


def test_what_is_allowed_altogether_costs_no_weight() -> None:
    for seed in range(20):
        row = LogitsRow(np.log(P))
        rng = np.random.default_rng(seed)
        _, log_mass = draw_allowed(row, 1.0, np.ones(len(P)), lambda _: True, rng, 100)
        assert math.isclose(log_mass, row.mass().log_total, abs_tol=1e-12)


def test_no_token_is_tested_twice_and_few_are() -> None:
    vocabulary = 5000
    logits = np.random.default_rng(0).normal(size=vocabulary) * 3
    asked: list[int] = []

    def allows(token: int) -> bool:
        asked.append(token)
        return token % 2 == 0

    draw_allowed(LogitsRow(logits), 1.0, np.ones(vocabulary), allows, np.random.default_rng(1), 1000)
    assert len(asked) == len(set(asked)) < 20


def test_tiny_masses_are_kept_in_log_space() -> None:
    logits = np.array([0.0, -800.0, -801.0])
    _, log_mass = draw_allowed(
        LogitsRow(logits), 1.0, np.array([0.0, 1.0, 1.0]), {1, 2}.__contains__, np.random.default_rng(0), 100
    )
    assert math.isclose(log_mass, np.logaddexp(-800, -801), rel_tol=1e-12)
