"""What a run leaves: its record, the record's file, and the weighted particles."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import Gated, always, random_law, table_lm

from hfppl import Bernoulli, LMContext, Model, Particles, SMCRecord, smc_standard, smc_steer
from hfppl.errors import NoMassError
from hfppl.inference import SMCStep

LAW = random_law(31)


class Walk(Model):
    """Draws up to four tokens, prefers some, and dies of "b" at the second."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.context = LMContext(lm, "a")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.score(-0.8 * token.token_id)
        self.condition(not (token == 1 and self.context.token_count == 2))
        if self.context.token_count == 4:
            self.finish()


def read(path: Path) -> Any:
    """As a strict reader does it."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def names_within(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


# --- the file


async def test_the_file_has_the_fields_of_the_viewers_format(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    particles = await smc_standard(Walk(table_lm(LAW)), 12, ess_threshold=0.8, json_file=path, seed=4)
    steps = read(path)
    assert steps == particles.record.history
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert steps[0]["mode"] == "init"
    assert {step["mode"] for step in steps[1:]} == {"smc_step", "resample"}
    for step, info in zip(steps, particles.record.steps, strict=True):
        assert set(step) == {"step", "mode", "ancestors", "particles"}
        assert (step["mode"] == "resample") == info.resampled
        assert len(step["ancestors"]) == len(step["particles"]) == 12
        for particle, weight, text in zip(step["particles"], info.log_weights, info.texts, strict=True):
            assert set(particle) == {"contents", "logweight", "weight_incr"}
            assert particle["contents"] == f"<<<>>>{text}"
            assert float(particle["logweight"]) == weight


async def test_a_dead_particle_is_written_as_text_in_strict_json(tmp_path: Path) -> None:
    await smc_standard(
        Walk(table_lm(always(0.5, 0.5, 0, 0))), 8, ess_threshold=0, json_file=tmp_path / "r.json", seed=0
    )
    steps = read(tmp_path / "r.json")
    for before, step in itertools.pairwise(steps):
        for earlier, particle in zip(before["particles"], step["particles"], strict=True):
            if earlier["logweight"] == "-Infinity":
                assert particle["logweight"] == particle["weight_incr"] == "-Infinity"
    assert any(particle["logweight"] == "-Infinity" for particle in steps[-1]["particles"])


async def test_increments_are_what_each_step_added(tmp_path: Path) -> None:
    particles = await smc_standard(
        Walk(table_lm(LAW)), 5, ess_threshold=0, json_file=tmp_path / "r.json", seed=4
    )
    totals = np.zeros(5)
    for step in read(tmp_path / "r.json"):
        totals += [float(particle["weight_incr"]) for particle in step["particles"]]
        assert totals == pytest.approx([float(particle["logweight"]) for particle in step["particles"]])
    assert totals == pytest.approx(particles.log_weights)


async def test_a_models_own_markers_are_kept_and_odd_texts_come_through(tmp_path: Path) -> None:
    texts = ["</script>", 'line\nbreak "quoted"', "half \ufffd", "<<<done>>>todo", "<|endoftext|>"]

    class Shows(Model):
        async def start(self) -> None:
            self.text = texts[len(seen)]
            seen.append(self.text)

        async def step(self) -> None:
            self.finish()

        def string_for_serialization(self) -> str:
            return self.text

    seen: list[str] = []
    await smc_standard(Shows(), 5, json_file=tmp_path / "r.json", seed=0)
    (step,) = read(tmp_path / "r.json")
    contents = [particle["contents"] for particle in step["particles"]]
    assert contents == [text if text.startswith("<<<") else f"<<<>>>{text}" for text in texts]


async def test_a_folder_alone_gets_a_file_of_a_sensible_name_each_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    lm = table_lm(LAW)
    await asyncio.gather(*(smc_standard(Walk(lm), 2, visualization_dir=folder, seed=i) for i in range(3)))
    names = names_within(folder)
    assert len(names) == 3
    assert all(re.fullmatch(r"Walk-\d{8}-\d{6}-\d+\.json", name) for name in names)


@pytest.mark.parametrize("driver", [smc_standard, lambda model, n, **k: smc_steer(model, n, 2, **k)])
async def test_a_file_in_a_folder_and_a_file_alone(driver: Any, tmp_path: Path) -> None:
    await driver(Walk(table_lm(LAW)), 3, visualization_dir=str(tmp_path / "d"), json_file="x.json", seed=1)
    await driver(Walk(table_lm(LAW)), 3, json_file=str(tmp_path / "y.json"), seed=1)
    assert read(tmp_path / "d" / "x.json") == read(tmp_path / "y.json")
    assert names_within(tmp_path) == ["d", "x.json", "y.json"]  # and no scraps


async def test_the_file_is_written_when_the_run_fails_and_when_it_is_cancelled(tmp_path: Path) -> None:
    class Fails(Walk):
        async def step(self) -> None:
            await super().step()
            if self.context.token_count == 3:
                raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        await smc_standard(Fails(table_lm(always(1, 0, 0, 0))), 3, json_file=tmp_path / "f.json", seed=0)
    assert [step["step"] for step in read(tmp_path / "f.json")] == [1, 2]

    gated = Gated(LAW)
    run = asyncio.create_task(smc_standard(Walk(table_lm(gated)), 3, json_file=tmp_path / "c.json", seed=0))
    await gated.reached()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    gated.gate.set()
    assert read(tmp_path / "c.json") == []


async def test_a_place_that_cannot_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    started = False

    class Starts(Walk):
        async def start(self) -> None:
            nonlocal started
            started = True

    with pytest.raises(OSError, match="file"):
        await smc_standard(Starts(table_lm(LAW)), 3, visualization_dir=tmp_path / "file", seed=0)
    assert not started


async def test_a_record_that_cannot_be_written_does_not_hide_why_the_run_failed(tmp_path: Path) -> None:
    path = tmp_path / "record.json"

    class Fails(Model):
        async def step(self) -> None:
            path.mkdir()  # now no file can take this name
            raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine") as caught:
        await smc_standard(Fails(), 1, json_file=path, seed=0)
    assert any("record could not be written" in note for note in caught.value.__notes__)


# --- the record


async def test_ancestors_say_whom_each_particle_continues(tmp_path: Path) -> None:
    class Tagged(Walk):
        def string_for_serialization(self) -> str:
            return str(self.context)

    for driver in (
        lambda model, **k: smc_standard(model, 10, ess_threshold=1, **k),
        lambda model, **k: smc_standard(model, 10, ess_threshold=1, resampling_method="multinomial", **k),
        lambda model, **k: smc_steer(model, 6, 3, **k),
    ):
        particles = await driver(Tagged(table_lm(LAW)), seed=3, json_file=tmp_path / "r.json")
        steps = particles.record.steps
        assert any(step.resampled and step.ancestors != tuple(range(len(particles))) for step in steps)
        for before, step in itertools.pairwise(steps):
            for text, ancestor in zip(step.texts, step.ancestors, strict=True):
                assert text.startswith(before.texts[ancestor])


async def test_the_record_has_ancestors_and_weights_always_and_texts_only_when_asked_for(
    tmp_path: Path,
) -> None:
    shown: list[SMCStep] = []

    class NoText(Walk):
        def string_for_serialization(self) -> str:
            raise AssertionError("nobody asked for texts")

    particles = await smc_standard(NoText(table_lm(LAW)), 6, ess_threshold=0.5, seed=0, on_step=shown.append)
    assert shown == particles.record.steps
    assert [step.number for step in shown] == [1, 2, 3, 4]
    assert all(step.texts is None and len(step.ancestors) == 6 for step in shown)
    assert shown[0].ancestors == tuple(range(6))
    assert not shown[0].resampled
    with pytest.raises(ValueError, match="read-only"):
        shown[0].log_weights[0] = 1
    live = np.exp(shown[0].log_weights)
    assert shown[0].ess == pytest.approx(live.sum() ** 2 / (live**2).sum())
    assert shown[0].log_mean_weight == pytest.approx(math.log(live.mean()))
    assert [list(step.finished) for step in shown][-1] == [True] * 6


def test_a_record_can_be_kept_by_hand() -> None:
    class Shows(Model):
        def __str__(self) -> str:
            return "text"

    record = SMCRecord(2)
    models = [Shows(), Shows()]
    models[1].score(-1.0)
    record.add(models, [0, 1], False)
    models[0].condition(False)
    record.add(models, [0, 0], True)
    history = json.loads(record.to_json())
    assert [(step["step"], step["mode"], step["ancestors"]) for step in history] == [
        (1, "init", [0, 1]),
        (2, "resample", [0, 0]),
    ]
    assert history[1]["particles"][0] == {
        "contents": "<<<>>>text",
        "logweight": "-Infinity",
        "weight_incr": "-Infinity",
    }


async def test_an_exception_of_the_watcher_ends_the_run_unchanged() -> None:
    def watch(step: SMCStep) -> None:
        raise StopAsyncIteration("seen enough")

    with pytest.raises(Exception, match="seen enough"):
        await smc_standard(Walk(table_lm(LAW)), 2, seed=0, on_step=watch)


# --- the particles


class Given(Model):
    """A particle made by hand."""

    def __init__(self, text: str, weight: float, finished: bool = True) -> None:
        super().__init__()
        self.text, self.weight, self.finished = text, weight, finished

    def __str__(self) -> str:
        return self.text


def test_the_posterior_is_of_what_finished_alive_the_largest_first() -> None:
    particles = Particles(
        [
            Given("x", math.log(0.1)),
            Given("y", math.log(0.2)),
            Given("x", math.log(0.3)),
            Given("dead", -math.inf),
            Given("on its way", math.log(5.0), finished=False),
        ]
    )
    assert list(particles.posterior().items()) == [("x", pytest.approx(2 / 3)), ("y", pytest.approx(1 / 3))]
    assert particles.posterior(lambda p: len(p.text)) == {1: pytest.approx(1)}
    assert (particles.n_dead, particles.n_unfinished) == (1, 1)
    assert particles.best() is particles[2]  # the heaviest of those that show the mode
    assert particles.log_marginal_likelihood == pytest.approx(math.log(0.6 / 5))
    assert particles.normalized_weights == pytest.approx(np.array([0.1, 0.2, 0.3, 0, 5]) / 5.6)
    assert particles.ess == pytest.approx(5.6**2 / (0.01 + 0.04 + 0.09 + 25))


def test_the_best_is_the_mode_not_the_heaviest() -> None:
    particles = Particles([Given("x", 0.0), Given("y", -0.5), Given("y", -0.4)])
    assert particles.best() is particles[2]


def test_weights_are_those_at_the_end_of_inference() -> None:
    particles = Particles([Given("x", 0.0), Given("y", 0.0)])
    particles[0].weight = -5.0
    assert list(particles.log_weights) == [0.0, 0.0]
    for array in (particles.log_weights, particles.normalized_weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("models", [[], [Given("x", -math.inf)] * 3])
def test_nobody_left_is_shown_as_such(models: list[Any]) -> None:
    particles = Particles(models)
    assert (particles.posterior(), particles.ess, particles.n_dead) == ({}, 0.0, len(models))
    assert particles.log_marginal_likelihood == -math.inf
    assert list(particles.normalized_weights) == [0.0] * len(models)
    assert "log Z -inf" in repr(particles)
    with pytest.raises(NoMassError, match=f"{len(models)} of {len(models)} are dead"):
        particles.best()


def test_weights_far_from_one_lose_nothing() -> None:
    particles = Particles([Given("x", -1000.0), Given("y", -1000.0 + math.log(3))])
    assert particles.posterior() == {"y": pytest.approx(0.75), "x": pytest.approx(0.25)}
    assert particles.log_marginal_likelihood == pytest.approx(-1000 + math.log(2))


def test_what_is_shown_is_short_and_escaped() -> None:
    nasty = "<script>alert('&')</script>\nsecond line"
    many = [Given(f"text {i}", -0.1 * i) for i in range(40)]
    particles = Particles([Given(nasty, 1.0), Given("z" * 1000, 0.5), Given("dead", -math.inf), *many])
    text, page = repr(particles), particles._repr_html_()
    assert text.splitlines()[0].startswith("43 particles, ESS ")
    assert "1 dead" in text
    assert len(text.splitlines()) == 21
    assert max(map(len, text.splitlines())) < 120
    assert "\\nsecond line" in text
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "z" * 400 not in page


async def test_particles_stopped_by_max_steps_count_neither_in_the_posterior_nor_in_log_z() -> None:
    class Some(Model):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        async def step(self) -> None:
            self.n += 1
            if await self.sample(Bernoulli(0.5)):
                self.finish()

        def __str__(self) -> str:
            return str(self.n)

    particles = await smc_standard(Some(), 20, seed=0, max_steps=1)
    n_finished = sum(p.finished for p in particles)
    assert 0 < n_finished < 20
    assert particles.n_unfinished == 20 - n_finished
    assert particles.posterior() == {"1": pytest.approx(1)}
    assert particles.log_marginal_likelihood == pytest.approx(math.log(n_finished / 20))
    assert "unfinished" in repr(particles)
    assert len(particles.record.steps) == 1


async def test_a_model_that_has_finished_before_it_began_takes_no_step() -> None:
    class Finished(Model):
        def __init__(self) -> None:
            super().__init__()
            self.finish()

    particles = await smc_standard(Finished(), 3, seed=0)
    assert (len(particles), list(particles.log_weights), particles.record.steps) == (3, [0.0] * 3, [])
