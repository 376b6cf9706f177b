"""A seed fixes every draw, and nothing else does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import Counted, random_law, table_lm

import hfppl
from hfppl import (
    Bernoulli,
    Geometric,
    LMContext,
    LogCategorical,
    Model,
    TokenCategorical,
    importance_sampling,
    rng,
    smc_steer,
)
from hfppl import smc_standard as standard
from hfppl.errors import ArgumentError
from hfppl.random import Purpose, Streams

LAW = random_law(21)


class Mixed(Model):
    """Draws from every kind of distribution, waits as `pause` says, and prefers some."""

    def __init__(self, lm: Any, pause: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self.lm = lm
        self.pause = pause
        self.context = LMContext(lm, "a")
        self.source = np.random.default_rng(1)
        self.values: list[Any] = []

    def immutable_properties(self) -> list[str]:
        return ["pause"]

    async def start(self) -> None:
        self.values.append(rng().random())

    async def step(self) -> None:
        for _ in range(self.pause()):
            await asyncio.sleep(0)
        token = await self.sample(self.context.next_token())
        self.values += [
            await self.sample(self.context.mask_dist({0, 1})),
            await self.sample(Bernoulli(0.3)),
            await self.sample(Geometric(0.4)),
            await self.sample(LogCategorical([0.0, 1.0, -1.0])),
            int(await self.sample(TokenCategorical(self.lm, [0.0, 1.0, 2.0, 3.0]))),
            rng().random(),
            self.source.random(),
        ]
        self.score(-0.9 * token.token_id)
        if self.context.token_count == 4:
            self.finish()


def steer(model: Any, n: int, **keywords: Any) -> Any:
    return smc_steer(model, n, 2, **keywords)


DRIVERS = pytest.mark.parametrize("driver", [standard, steer, importance_sampling])


def shown(particles: Any) -> list[Any]:
    return [(str(p), p.values, p.weight) for p in particles]


@DRIVERS
async def test_the_same_seed_gives_the_same_particles_and_another_gives_others(driver: Any) -> None:
    first = shown(await driver(Mixed(table_lm(LAW)), 8, seed=5))
    assert shown(await driver(Mixed(table_lm(LAW)), 8, seed=5)) == first
    assert shown(await driver(Mixed(table_lm(LAW)), 8, seed=6)) != first


@DRIVERS
@pytest.mark.parametrize(
    "options", [{"batch_size": 1}, {"batch_size": 3}, {"row_cache_bytes": 0}, {"row_cache_bytes": 200}]
)
async def test_batches_and_caches_change_nothing(driver: Any, options: dict[str, int]) -> None:
    expected = shown(await driver(Mixed(table_lm(LAW)), 8, seed=5))
    assert shown(await driver(Mixed(table_lm(LAW, **options)), 8, seed=5)) == expected


@DRIVERS
@pytest.mark.parametrize("shuffle", range(3))
async def test_the_order_in_which_particles_run_changes_nothing(driver: Any, shuffle: int) -> None:
    expected = shown(await driver(Mixed(table_lm(LAW)), 8, seed=5))
    shuffled = random.Random(shuffle)
    counted = Counted(LAW)
    lm = table_lm(counted, batch_size=2)
    particles = await driver(Mixed(lm, lambda: shuffled.randrange(12)), 8, seed=5)
    assert shown(particles) == expected
    straight = Counted(LAW)
    await driver(Mixed(table_lm(straight, batch_size=2)), 8, seed=5)
    assert counted.asked != straight.asked  # it did run in another order


@DRIVERS
async def test_watching_and_recording_change_nothing(
    driver: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = shown(await driver(Mixed(table_lm(LAW)), 8, seed=5))
    watched: list[Any] = []
    for keywords in (
        {"progress": True},
        {"on_step": watched.append},
        {"json_file": tmp_path / "record.json"},
        {"visualization_dir": tmp_path / "folder"},
        {"max_steps": 100},
    ):
        assert shown(await driver(Mixed(table_lm(LAW)), 8, seed=5, **keywords)) == expected
    assert [step.number for step in watched] == [1, 2, 3, 4]
    assert (tmp_path / "record.json").exists()
    assert "SMC" in capsys.readouterr().err


@pytest.fixture
def _kept_global_states() -> Iterator[None]:
    numpy_state, python_state = np.random.get_state(), random.getstate()
    yield
    np.random.set_state(numpy_state)
    random.setstate(python_state)


def global_states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return kind, keys.tolist(), *rest, random.getstate()


@DRIVERS
@pytest.mark.usefixtures("_kept_global_states")
async def test_a_seeded_run_leaves_the_global_generators_untouched(driver: Any, tmp_path: Path) -> None:
    before = global_states()
    await driver(Mixed(table_lm(LAW)), 8, seed=5, json_file=tmp_path / "record.json")
    assert global_states() == before


@DRIVERS
@pytest.mark.usefixtures("_kept_global_states")
async def test_an_unseeded_run_takes_exactly_one_number_from_numpys_global_generator(driver: Any) -> None:
    np.random.seed(3)
    np.random.randint(0, 2**62, dtype=np.int64)
    once = global_states()
    np.random.seed(3)
    await driver(Mixed(table_lm(LAW)), 8)
    assert global_states() == once


@DRIVERS
@pytest.mark.usefixtures("_kept_global_states")
async def test_numpys_seed_makes_runs_repeatable_and_two_runs_differ(driver: Any) -> None:
    model = Mixed(table_lm(LAW))
    np.random.seed(3)
    pair = [shown(await driver(model, 8)) for _ in range(2)]
    assert pair[0] != pair[1]
    np.random.seed(3)
    assert [shown(await driver(model, 8)) for _ in range(2)] == pair


@DRIVERS
async def test_a_template_may_be_used_again(driver: Any) -> None:
    model = Mixed(table_lm(LAW))
    first = shown(await driver(model, 8, seed=5))
    assert (str(model), model.values, model.weight, model.finished) == ("", [], 0.0, False)
    assert shown(await driver(model, 8, seed=5)) == first


async def test_particles_never_draw_alike_in_one_step_nor_one_particle_in_two() -> None:
    class Draws(Model):
        def __init__(self) -> None:
            super().__init__()
            self.values: list[float] = []

        async def start(self) -> None:
            self.values.append(rng().random())

        async def step(self) -> None:
            await asyncio.sleep(0)
            self.values += [rng().random() for _ in range(3)]
            if len(self.values) == 4:
                self.score(np.log(self.values[1]))  # the first step makes copies of some
            else:
                self.finish()

    particles = await standard(Draws(), 50, ess_threshold=1, seed=0)
    assert len({p.values[0] for p in particles}) < 50
    latest = [value for p in particles for value in p.values[4:]]
    earlier = {value for p in particles for value in p.values[:4]}
    assert len(set(latest)) == 150
    assert not earlier & set(latest)


async def test_tasks_of_a_particle_draw_from_its_stream() -> None:
    class Tasks(Model):
        async def step(self) -> None:
            async def draw() -> float:
                return rng().random()

            self.values = [await asyncio.create_task(draw()), rng().random()]
            self.finish()

    once, again = [[p.values for p in await standard(Tasks(), 3, seed=1)] for _ in range(2)]
    assert once == again
    assert len({value for values in once for value in values}) == 6


@pytest.mark.usefixtures("_kept_global_states")
async def test_outside_inference_draws_come_from_numpys_global_generator() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(8)
        context = LMContext(table_lm(LAW), "a")
        draws.append([int((await context.next_token().sample())[0]) for _ in range(10)])
        draws[-1].append(rng().random())
    assert draws[0] == draws[1]
    assert len(set(draws[0])) > 2


async def test_runs_inside_a_step_have_streams_of_their_own() -> None:
    class Outer(Model):
        async def step(self) -> None:
            inner = await standard(Mixed(table_lm(LAW)), 4, seed=5)
            self.inner = shown(inner)
            self.value = rng().random()
            self.finish()

    expected = shown(await standard(Mixed(table_lm(LAW)), 4, seed=5))
    particles = await standard(Outer(), 3, seed=2)
    assert all(p.inner == expected for p in particles)
    assert len({p.value for p in particles}) == 3


def test_every_seed_purpose_step_and_slot_has_a_stream_of_its_own() -> None:
    firsts = {
        Streams(seed).generator(purpose, step, slot).random()
        for seed in (0, 1, 2**70)
        for purpose in Purpose
        for step in range(4)
        for slot in range(4)
    }
    assert len(firsts) == 3 * len(Purpose) * 16


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="seed"):
        Streams(seed)


class OwnGenerators(Model):
    """Generators wherever a model may keep them."""

    __slots__ = ("slotted",)

    def __init__(self) -> None:
        super().__init__()
        self.slotted = np.random.default_rng(0)
        self.nested = {"a": [np.random.default_rng(0)]}
        self.legacy = np.random.RandomState(0)
        self.philox = np.random.Generator(np.random.Philox(0))
        self.plain = random.Random(0)
        self.drawn: tuple[float, ...] = ()

    async def step(self) -> None:
        generators = (self.slotted, self.nested["a"][0], self.legacy, self.philox, self.plain)
        self.drawn = tuple(generator.random() for generator in generators)
        self.finish()


async def test_generators_are_renewed_wherever_they_are_kept() -> None:
    particles = await hfppl.smc_standard(OwnGenerators(), 3, seed=5)
    again = await hfppl.smc_standard(OwnGenerators(), 3, seed=5)
    assert [p.drawn for p in particles] == [p.drawn for p in again]
    for values in zip(*(p.drawn for p in particles), strict=True):
        assert len(set(values)) == 3
