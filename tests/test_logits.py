"""Masses and draws of a row against plain float64 arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfppl.errors import NoMassError, NumericalError
from hfppl.logits import LogitsRow

SIZES = [1, 3, 511, 512, 513, 1024, 1500, 5000]


def plain(logits: np.ndarray, temperature: float, mask: np.ndarray) -> np.ndarray:
    """Unnormalised probabilities relative to the row's peak."""
    with np.errstate(over="ignore"):
        return np.exp((logits.astype(np.float64) - float(logits.max())) / temperature) * mask


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("temperature", [1.0, 0.3, 2.5])
def test_mass_draw_and_log_prob(size: int, dtype: type, temperature: float) -> None:
    rng = np.random.default_rng(size)
    logits = (rng.normal(size=size) * 4).astype(dtype)
    mask = (rng.random(size) < 0.4).astype(np.float32)
    mask[rng.integers(size)] = 1
    row = LogitsRow(logits)
    weights = plain(logits, temperature, mask)
    mass = row.mass(temperature, mask)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    assert mass.log_total == pytest.approx(math.log(weights.sum()), abs=tolerance)
    total = plain(logits, temperature, np.ones(size)).sum()
    assert row.mass(temperature).log_total == pytest.approx(math.log(total), abs=tolerance)
    running = weights.cumsum()
    for uniform in [0.0, 0.5, 1 - 2**-53, *rng.random(50)]:
        index = row.draw(uniform, mass, temperature, mask)
        assert mask[index] == 1
        # What a plain search would find, up to the rounding of float32.
        before = running[index - 1] if index else 0.0
        assert before <= uniform * running[-1] * (1 + 1e-5)
        assert running[index] >= uniform * running[-1] * (1 - 1e-5)
        expected = math.log(weights[index] / weights.sum())
        assert row.log_prob(index, mass, temperature) == pytest.approx(expected, abs=1e-5)
    logprobs = row.logprobs(temperature, mask)
    assert np.exp(logprobs).sum() == pytest.approx(1, abs=1e-5)
    assert (logprobs[mask == 0] == -np.inf).all()


def test_a_full_mask_weighs_exactly_one() -> None:
    for dtype in (np.float32, np.float64):
        row = LogitsRow(np.random.default_rng(0).normal(size=3000).astype(dtype))
        full = row.mass(1.0, np.ones(3000, dtype=np.float32))
        assert full.log_total - row.mass(1.0).log_total == 0


def test_a_token_far_below_the_rest_keeps_its_log_probability() -> None:
    row = LogitsRow(np.array([0, -40, -300, -np.inf], dtype=np.float32))
    total = row.mass().log_total
    for index, value in ((1, -40.0), (2, -300.0)):
        mask = np.zeros(4, dtype=np.float32)
        mask[index] = 1
        mass = row.mass(1.0, mask)
        assert mass.log_total - total == pytest.approx(value, abs=1e-5)
        assert row.draw(0.7, mass, 1.0, mask) == index
        assert row.log_prob(index, mass) == pytest.approx(0, abs=1e-6)


def test_impossible_subsets() -> None:
    row = LogitsRow(np.array([0.0, 1.0, -np.inf]))
    for mask in (np.zeros(3), np.array([0.0, 0.0, 1.0])):
        mass = row.mass(1.0, mask)
        assert mass.log_total == -math.inf
        with pytest.raises(NoMassError):
            row.draw(0.5, mass, 1.0, mask)
    nothing = LogitsRow(np.full(5, -np.inf))
    assert nothing.mass().log_total == -math.inf
    assert (nothing.logprobs() == -np.inf).all()


def test_temperature_zero_is_the_first_of_the_largest() -> None:
    row = LogitsRow(np.array([1.0, 2.0, 2.0], dtype=np.float32))
    mass = row.mass(0)
    assert [row.draw(u, mass, 0) for u in (0, 0.5, 0.99)] == [1, 1, 1]
    assert [row.log_prob(i, mass, 0) for i in range(3)] == [-math.inf, 0, -math.inf]
    assert row.mass(0, np.array([1.0, 0.0, 1.0])).log_total == -math.inf
    assert list(row.logprobs(0)) == [-math.inf, 0, -math.inf]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    with pytest.raises(NumericalError, match="index 1"):
        LogitsRow(np.array([0.0, bad], dtype=np.float32))


def test_rows_are_read_only() -> None:
    row = LogitsRow(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        row.logits[0] = 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-60, 60, width=32), min_size=1, max_size=12),
    st.floats(0, 1, exclude_max=True),
)
def test_a_draw_is_the_first_index_above(logits: list[float], uniform: float) -> None:
    row = LogitsRow(np.array(logits, dtype=np.float64))
    p = plain(row.logits, 1.0, np.ones(len(logits)))
    running = p.cumsum()
    assert row.draw(uniform, row.mass()) == int(np.searchsorted(running, uniform * running[-1], side="right"))


def test_draws_follow_the_row() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=1300).astype(np.float32)
    logits[:4] += 7
    row = LogitsRow(logits)
    mass = row.mass()
    p = np.exp(row.logprobs())
    draws = np.array([row.draw(u, mass) for u in rng.random(4000)])
    for index in range(4):
        error = math.sqrt(p[index] * (1 - p[index]) / len(draws))
        assert abs((draws == index).mean() - p[index]) < 5 * error


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_temperature(dtype: type) -> None:
    row = LogitsRow(np.array([1.0, 2.0, 2.0, -np.inf], dtype=dtype))
    mass = row.mass(1e-30)
    assert mass.log_total == pytest.approx(math.log(2))
    assert [row.draw(u, mass, 1e-30) for u in (0.1, 0.9)] == [1, 2]
    assert np.exp(row.logprobs(1e-30)).tolist() == pytest.approx([0, 0.5, 0.5, 0])
    below = np.array([1.0, 0.0, 0.0, 1.0])
    assert row.draw(0.5, row.mass(1e-30, below), 1e-30, below) == 0
