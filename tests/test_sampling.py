"""The textbook loop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfppl.errors import ArgumentError, NumericalError
from hfppl.logits import LogitsRow
from hfppl.sampling import generate, min_p, sample_token, softmax_with_temperature, top_k, top_p


class Fixed:
    def __init__(self, *uniforms: float) -> None:
        self.uniforms = list(uniforms)

    def random(self) -> float:
        return self.uniforms.pop(0)


def test_the_textbook_numbers() -> None:
    assert softmax_with_temperature([2, 1, 0], 1) == pytest.approx([0.665, 0.245, 0.090], abs=5e-4)
    assert softmax_with_temperature([2, 1, 0], 0.5) == pytest.approx([0.867, 0.117, 0.016], abs=5e-4)


def test_temperature_zero_takes_the_first_of_the_largest() -> None:
    assert softmax_with_temperature([1, 2, 2], 0).tolist() == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-3, 1.0, 1e6])
def test_large_logits_and_extreme_temperatures_are_stable(temperature: float) -> None:
    probs = softmax_with_temperature([1000.0, 999.0, -math.inf], temperature)
    assert probs.sum() == pytest.approx(1)
    assert probs[2] == 0
    assert probs[0] >= probs[1]


@pytest.mark.parametrize("temperature", [-1, -1e-9, math.nan, math.inf])
def test_bad_temperatures(temperature: float) -> None:
    with pytest.raises(ArgumentError, match="temperature"):
        softmax_with_temperature([0.0, 1.0], temperature)


@pytest.mark.parametrize("logits", [[math.nan, 0], [math.inf, 0], [-math.inf, -math.inf]])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_no_distribution(logits: list[float], temperature: float) -> None:
    with pytest.raises(NumericalError):
        softmax_with_temperature(logits, temperature)


@pytest.mark.parametrize(
    ("uniform", "index"), [(0.0, 1), (0.2499, 1), (0.25, 2), (0.7499, 2), (0.75, 4), (1 - 2**-53, 4)]
)
def test_the_first_running_total_strictly_above(uniform: float, index: int) -> None:
    assert sample_token([0.0, 0.25, 0.5, 0.0, 0.25], Fixed(uniform)) == index


def test_never_past_the_end_and_never_impossible() -> None:
    tenths = [0.1] * 10 + [0.0]
    assert sum(tenths) < 1
    assert sample_token(tenths, Fixed(1 - 2**-53)) == 9


def test_one_uniform_a_token() -> None:
    rng, twin = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(5):
        sample_token([0.5, 0.5], rng)
        twin.random()
    assert rng.random() == twin.random()


@pytest.mark.parametrize("probs", [[0.5, 0.4], [1.5, -0.5], [math.nan, 1], [], [[1.0]]])
def test_what_is_no_distribution_is_refused(probs: list[float]) -> None:
    with pytest.raises(ArgumentError):
        sample_token(probs, Fixed(0.5))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(lambda p: sum(p) > 1e-6), st.floats(0, 0.999999)
)
def test_only_possible_tokens_are_drawn(weights: list[float], uniform: float) -> None:
    probs = np.array(weights) / sum(weights)
    assert probs[sample_token(probs, Fixed(uniform))] > 0


def test_generate_keeps_the_prompt() -> None:
    prompt = [3, 1]
    seen: list[list[int]] = []

    def next_logits(ids: list[int]) -> list[float]:
        seen.append(ids)
        return [0.0 if i == len(ids) else -math.inf for i in range(6)]

    assert generate(next_logits, prompt, 3, 1.0, np.random.default_rng(0)) == [3, 1, 2, 3, 4]
    assert prompt == [3, 1]
    assert seen == [[3, 1], [3, 1, 2], [3, 1, 2, 3]]
    assert generate(next_logits, prompt, 0, 1.0, np.random.default_rng(0)) == [3, 1]
    with pytest.raises(ArgumentError, match="n_new"):
        generate(next_logits, prompt, -1, 1.0, np.random.default_rng(0))


def test_generate_draws_from_the_model() -> None:
    rng = np.random.default_rng(1)
    draws = [generate(lambda ids: [0.0, math.log(3)], [], 1, 1.0, rng)[0] for _ in range(2000)]
    assert abs(np.mean(draws) - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 2000)


@pytest.mark.parametrize("temperature", [0, 0.5, 1.0, 2.0])
def test_particles_draw_as_the_textbook_does(temperature: float) -> None:
    """`LogitsRow` searches blocks of a row; with the same uniform it finds the same token."""
    rng = np.random.default_rng(2)
    row = LogitsRow(rng.normal(size=2000) * 3)
    probs = softmax_with_temperature(row.logits, temperature)
    for uniform in rng.random(200):
        assert row.draw(uniform, row.mass(temperature), temperature) == sample_token(probs, Fixed(uniform))


def test_truncations() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    kept = lambda values: np.flatnonzero(np.isfinite(values)).tolist()  # noqa: E731
    assert kept(top_k(logits, 2)) == [0, 1]
    assert kept(top_k([1.0, 2.0, 2.0], 1)) == [1]
    assert kept(top_k(logits, 10)) == [0, 1, 2, 3]
    assert kept(top_p(logits, 0.8)) == [0, 1]
    assert kept(top_p(logits, 0.81)) == [0, 1, 2]
    assert kept(top_p(logits, 1.0)) == [0, 1, 2, 3]
    assert kept(top_p(logits, 1e-9)) == [0]
    assert kept(top_p([0.0, -30.0, -math.inf], 1.0)) == [0, 1]
    assert kept(min_p(logits, 0.3)) == [0, 1, 2]
    assert kept(min_p(logits, 0.0)) == [0, 1, 2, 3]
    for function, bad in ((top_k, 0), (top_p, 0.0), (top_p, 1.1), (min_p, -0.1)):
        with pytest.raises(ArgumentError):
            function(logits, bad)
