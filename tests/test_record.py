"""What a run leaves: its record, the record's file, and the weighted particles."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import Gated, always, random_law, table_lm

from hfppl import (
    Bernoulli,
    LMContext,
    Model,
    Particles,
    SMCRecord,
    importance_sampling,
    smc_standard,
    smc_steer,
)
from hfppl.errors import ArgumentError, NoMassError
from hfppl.inference import RunInfo, SMCStep
from hfppl.inference.record_file import RecordFile, write_whole

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


def told(record: SMCRecord) -> list[Any]:
    """All that the steps say, but how long they took."""
    return [
        (
            step.number,
            step.ancestors,
            step.resampled,
            step.log_weights.tolist(),
            step.finished.tolist(),
            step.texts,
        )
        for step in record.steps
    ]


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
        assert (step["mode"] == "resample") == info.resampled
        assert len(step["ancestors"]) == len(step["particles"]) == 12
        for particle, weight, text in zip(step["particles"], info.log_weights, info.texts, strict=True):
            assert set(particle) == {"contents", "logweight", "weight_incr"}
            assert re.fullmatch("[abc.]*<<<[abc.]>>>", particle["contents"])  # one token is new
            assert particle["contents"].replace("<<<", "").replace(">>>", "") == text
            assert float(particle["logweight"]) == weight


async def test_the_file_says_what_the_format_lacks(tmp_path: Path) -> None:
    particles = await smc_standard(
        Walk(table_lm(LAW)), 12, ess_threshold=0.8, json_file=tmp_path / "r.json", seed=4
    )
    steps = read(tmp_path / "r.json")
    assert steps[0]["schema"] == 2
    assert steps[0]["run"] == {
        "model": "Walk",
        "driver": "smc_standard",
        "n_particles": 12,
        "seed": 4,
        "resampling_method": "stratified",
        "ess_threshold": 0.8,
        "n_beam": None,
    }
    for step, info in zip(steps, particles.record.steps, strict=True):
        assert step["ancestors"] == list(info.ancestors)
        assert step["resampled"] == info.resampled
        assert step["finished"] == info.finished.tolist()
        assert step["ess"] == info.ess
        assert float(step["log_z"]) == info.log_mean_weight
    seconds = [step["seconds"] for step in steps]
    assert all(0 <= earlier <= later for earlier, later in itertools.pairwise(seconds))


async def test_every_driver_says_what_it_was_asked_to_do() -> None:
    model = Walk(table_lm(LAW))
    steered = await smc_steer(model, 4, 3, seed=1)
    assert steered.record.run == RunInfo("Walk", "smc_steer", 4, 1, "optimal", None, 3)
    independent = await importance_sampling(model, 4, seed=2)
    assert independent.record.run == RunInfo("Walk", "importance_sampling", 4, 2)
    unseeded = await smc_standard(model, 4, resampling_method="ssp")
    again = await smc_standard(model, 4, resampling_method="ssp", seed=unseeded.record.run.seed)
    assert list(map(str, again)) == list(map(str, unseeded))


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
    assert contents == [text if text.startswith("<<<") else f"<<<{text}>>>" for text in texts]


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
    one, other = (SMCRecord.load(tmp_path / name) for name in ("d/x.json", "y.json"))
    assert told(one) == told(other)
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
            path.unlink()
            path.mkdir()  # now no file can take this name
            raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine") as caught:
        await smc_standard(Fails(), 1, json_file=path, seed=0)
    assert any("record could not be written" in note for note in caught.value.__notes__)


# --- the file while the run goes on


class Clock:
    """A clock that is set by hand, and moves on by `takes` whenever it is read."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes = 0.0

    def __call__(self) -> float:
        self.now += self.takes
        return self.now


class Shows(Model):
    """A particle that shows a text."""

    def __init__(self, text: str = "", weight: float = 0.0) -> None:
        super().__init__()
        self.text, self.weight = text, weight

    def string_for_serialization(self) -> str:
        return self.text


def test_the_file_is_written_at_the_first_step_and_then_once_a_second(tmp_path: Path) -> None:
    clock, record, path = Clock(), SMCRecord(1), tmp_path / "r.json"
    file = RecordFile(path, record, clock)

    def step(seconds_later: float) -> int:
        clock.now += seconds_later
        record.add([Shows()], [0], False)
        file.update()
        return len(read(path))

    assert [step(0), step(0.4), step(0.5), step(0.2), step(0.9), step(0.1)] == [1, 1, 1, 4, 4, 6]
    record.add([Shows()], [0], False)
    file.write()
    assert len(read(path)) == 7


def test_a_file_that_takes_long_to_write_is_written_less_often(tmp_path: Path) -> None:
    clock, record, path = Clock(), SMCRecord(1), tmp_path / "r.json"
    file = RecordFile(path, record, clock)
    clock.takes = 0.5
    for _ in range(2):
        record.add([Shows()], [0], False)
        file.update()
        clock.takes = 0.0
        clock.now += 9  # twenty times as long as the writing took would be ten seconds
    assert len(read(path)) == 1
    clock.now += 2
    file.update()
    assert len(read(path)) == 2


def test_a_disk_that_is_full_for_a_while_does_not_end_the_run(tmp_path: Path) -> None:
    clock, record, folder = Clock(), SMCRecord(1), tmp_path / "folder"
    file = RecordFile(folder / "r.json", record, clock)
    folder.write_text("in the way")
    record.add([Shows()], [0], False)
    file.update()
    with pytest.raises(OSError, match="folder"):
        file.write()
    folder.unlink()
    clock.now += 5
    file.update()
    assert len(read(folder / "r.json")) == 1


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "half of "
        raise ArithmeticError("mine")

    path = tmp_path / "r.json"
    write_whole(path, ["the old one"])
    with pytest.raises(ArithmeticError):
        write_whole(path, pieces())
    assert path.read_text() == "the old one"
    assert names_within(tmp_path) == ["r.json"]


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, ["new"])
    assert (target.read_text(), link.is_symlink()) == ("new", True)


KILLED = """
import asyncio, sys
from hfppl import Bernoulli, Model, smc_standard
from hfppl.inference import record_file

record_file._PAUSE, record_file._SHARE = 0.0, float("inf")  # written at every step

class Waits(Model):
    n = 0
    async def step(self):
        self.n += 1
        if self.n == 4:
            print("three steps are taken", flush=True)
            sys.stdin.read()
        await self.sample(Bernoulli(0.5))
    def __str__(self):
        return "x" * self.n

asyncio.run(smc_standard(Waits(), 5, seed=1, json_file=sys.argv[1]))
"""


def test_a_run_that_is_killed_leaves_its_last_whole_state(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"three steps are taken\n"
        run.kill()
    record = SMCRecord.load(path)
    assert [step.texts for step in record.steps] == [("x",) * 5, ("xx",) * 5, ("xxx",) * 5]
    assert record.run is not None
    assert record.run.model == "Waits"
    assert names_within(tmp_path) == ["r.json"]


# --- the file read again


@pytest.mark.parametrize(
    "driver",
    [
        lambda model, **k: smc_standard(model, 12, ess_threshold=0.9, **k),
        lambda model, **k: smc_steer(model, 6, 2, **k),
        lambda model, **k: importance_sampling(model, 5, **k),
    ],
)
async def test_a_record_comes_back_as_it_was(driver: Any, tmp_path: Path) -> None:
    particles = await driver(Walk(table_lm(LAW)), seed=4, json_file=tmp_path / "r.json")
    record, loaded = particles.record, SMCRecord.load(tmp_path / "r.json")
    assert told(loaded) == told(record)
    assert [step.seconds for step in loaded.steps] == [step.seconds for step in record.steps]
    assert loaded.run == record.run
    assert loaded.n_particles == record.n_particles
    assert loaded.history == record.history
    with pytest.raises(ValueError, match="read-only"):
        loaded.steps[0].log_weights[0] = 1


ODD_TEXTS = [
    "",
    "<<<",
    ">>> x = 1",
    "<<<>>>",
    "<<<>>>all",
    "a<<<b>>>c",
    ">>>a<<<",
    "\0\u202e\u2028",
    "half \ud83d",
    "\U0001f600",
    "</script><!--",
    '"\\\n\r\t',
]


def test_odd_texts_come_back_as_they_were(tmp_path: Path) -> None:
    record = SMCRecord(len(ODD_TEXTS))
    record.add([Shows(text) for text in ODD_TEXTS], range(len(ODD_TEXTS)), False)
    longer = [text + more for text, more in zip(ODD_TEXTS, ["x", "<<<", ">>>", "\ud83d"] * 3, strict=True)]
    record.add([Shows(text) for text in longer], range(len(ODD_TEXTS)), False)
    record.add([Shows(text) for text in ODD_TEXTS[::-1]], range(len(ODD_TEXTS)), True)
    path = record.save(tmp_path / "r.json")
    assert path.read_bytes().isascii()
    assert [list(step.texts) for step in SMCRecord.load(path).steps] == [ODD_TEXTS, longer, ODD_TEXTS[::-1]]


async def test_a_record_without_texts_comes_back_without(tmp_path: Path) -> None:
    particles = await smc_standard(Walk(table_lm(LAW)), 6, seed=0)
    loaded = SMCRecord.load(particles.record.save(tmp_path / "r.json"))
    assert not loaded.keep_texts
    assert told(loaded) == told(particles.record)


def test_a_record_of_no_step_comes_back_empty(tmp_path: Path) -> None:
    assert SMCRecord.load(SMCRecord(3).save(tmp_path / "r.json")).steps == []


OLDER = [
    {
        "step": 1,
        "mode": "init",
        "particles": [
            {"contents": "<<<>>>a", "logweight": "-0.5", "weight_incr": "-0.5"},
            {"contents": "<<<b>>>", "logweight": "-Infinity", "weight_incr": "nan"},
        ],
    },
    {
        "step": 2,
        "mode": "smc_step",
        "particles": [
            {"contents": "a<<<c>>>", "logweight": "-1.5", "weight_incr": "-1.0"},
            {"contents": "<<<>>>b", "logweight": None, "weight_incr": "nan"},
        ],
    },
    {
        "step": 3,
        "mode": "resample",
        "ancestors": [0, 0],
        "particles": [
            {"contents": "<<<>>>acd", "logweight": "-2.5", "weight_incr": "-1.0"},
            {"contents": "<<<>>>ace", "logweight": "-3.5", "weight_incr": "-2.0"},
        ],
    },
]


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_in_the_older_format_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    record = SMCRecord.load(written(tmp_path / "old.json", OLDER))
    assert (record.n_particles, record.run, record.keep_texts) == (2, None, True)
    assert told(record) == [
        (1, (0, 1), False, [-0.5, -math.inf], [False, True], ("a", "<<<b>>>")),
        (2, (0, 1), False, [-1.5, -math.inf], [False, True], ("a<<<c>>>", "b")),
        (3, (0, 0), True, [-2.5, -3.5], [False, False], ("acd", "ace")),
    ]
    assert [step.seconds for step in record.steps] == [None] * 3


def changed(**fields: Any) -> list[Any]:
    """The older file with other fields in its last step."""
    return [*OLDER[:2], {name: value for name, value in (OLDER[2] | fields).items() if value is not None}]


PARTICLE = OLDER[2]["particles"][0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not JSON"),
        ('[{"step": NaN}]', "NaN"),
        ({"steps": []}, "a list of steps"),
        ([1], "a list of steps"),
        ([{"schema": 3, "particles": []}], "schema 3 is not known"),
        (changed(ancestors=None), "step 3 does not say its 'ancestors'"),
        (changed(particles=None), "step 3 does not say its 'particles'"),
        (changed(ancestors=[0, 2]), "step 3: its ancestors are not all from 0 to 1"),
        (changed(ancestors=[0]), "step 3: it has not 2 particles"),
        (changed(particles=[PARTICLE] * 3), "step 3: it has not 2 particles"),
        (changed(particles=[PARTICLE, PARTICLE | {"logweight": "nan"}]), "a log-weight is nan"),
        (changed(particles=[PARTICLE, PARTICLE | {"logweight": "much"}]), "much"),
        (changed(particles=[PARTICLE, PARTICLE | {"contents": 7}]), "step 3: "),
        (changed(particles=7), "step 3: "),
        (changed(seconds="1"), "step 3: "),
        ([OLDER[0] | {"run": {"model": 3}}], "the model 3"),
    ],
)
def test_what_is_not_a_record_is_refused_by_name(content: Any, complaint: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", content)
    with pytest.raises(ArgumentError, match=re.escape(complaint)) as caught:
        SMCRecord.load(path)
    assert "x.json is not a record of a run" in str(caught.value)


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
        "contents": "text<<<>>>",
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
