"""The line that tells how a run goes: when it shows, what it says, and that it changes nothing."""

import contextlib
import io
import math
import os
import pty
import subprocess
import sys
import termios
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tables import always, random_law, table_lm

from hfppl import (
    Bernoulli,
    LMContext,
    Model,
    SMCRecord,
    enumerate_exact,
    importance_sampling,
    smc_standard,
    smc_steer,
)
from hfppl.inference import progress as module
from hfppl.inference.progress import Progress, somebody_looks


class Clock:
    """Time as the test tells it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def __init__(self, device: int) -> None:
        super().__init__()
        self._device = device

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._device

    @property
    def lines(self) -> list[str]:
        """What stood on the line, one state after the other."""
        return [line.strip() for line in self.getvalue().split("\r") if line.strip()]


class Text(Model):
    """A particle that has a text and a weight, and never runs."""

    def __init__(self, text: str, weight: float = 0.0, twist: float = 0.0, finished: bool = False) -> None:
        super().__init__()
        self.text = text
        self.weight, self._twist, self.finished = weight + twist, twist, finished
        self.shown = 0

    def __str__(self) -> str:
        self.shown += 1
        return self.text


class Writer(Model):
    """Up to four tokens, some of which cost weight."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.context = LMContext(lm, "")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.score(-0.7 * int(token))
        self.twist(0.3)
        if await self.sample(Bernoulli(0.1)):
            self.condition(False)
        if token == 3 or self.context.token_count == 4:
            self.finish()


class Unspeakable(Writer):
    def __str__(self) -> str:
        raise RuntimeError("no words")


OpenTerminal = Callable[..., Terminal]
Begin = Callable[..., Progress]

DRIVERS = pytest.mark.parametrize(
    ("driver", "keywords"),
    [
        (smc_standard, {"n_particles": 6, "seed": 3}),
        (smc_steer, {"n_particles": 3, "n_beam": 2, "seed": 3}),
        (importance_sampling, {"n_particles": 6, "seed": 3}),
        (enumerate_exact, {}),
    ],
    ids=["smc_standard", "smc_steer", "importance_sampling", "enumerate_exact"],
)


@pytest.fixture
def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenTerminal]:
    """Puts a terminal of some width in the place of stderr, which pytest sets anew after the set-up."""
    master, slave = pty.openpty()

    def open_it(columns: int = 200, rows: int = 24) -> Terminal:
        termios.tcsetwinsize(slave, (rows, columns))
        monkeypatch.setattr(sys, "stderr", Terminal(slave))
        return sys.stderr  # type: ignore[return-value]

    yield open_it
    os.close(slave)
    os.close(master)


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Makes a `Progress`, and closes it in the end: tqdm puts a second line under one that is open."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(contextlib.closing(Progress(*arguments)))


def shown(particles: Sequence[Any]) -> list[tuple[str, float]]:
    return [(str(particle.context), particle.weight) for particle in particles]


def step_of(record: SMCRecord, particles: Sequence[Any], ancestors: Sequence[int] | None = None) -> Any:
    return record.add(particles, ancestors or range(len(particles)), ancestors is not None)


# --- when it shows


@DRIVERS
@pytest.mark.parametrize("kind", [Writer, Unspeakable])
async def test_a_run_is_the_same_whether_it_is_watched_or_not(
    driver: Any, keywords: Any, kind: Any, open_terminal: OpenTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal()
    monkeypatch.setattr(module, "_INTERVAL", 0.0)  # draw at every step
    lm = table_lm(random_law(1))
    unwatched = await driver(kind(lm), **keywords, progress=False)
    assert terminal.getvalue() == ""
    watched = await driver(kind(lm), **keywords, progress=True)
    assert shown(watched) == shown(unwatched)
    assert watched.log_marginal_likelihood == unwatched.log_marginal_likelihood
    assert len(terminal.lines) >= 4
    assert ("RuntimeError in Unspeakable.__str__" in terminal.lines[-1]) == (kind is Unspeakable)


@DRIVERS
async def test_a_short_run_that_nobody_asked_to_watch_shows_nothing(
    driver: Any, keywords: Any, open_terminal: OpenTerminal
) -> None:
    terminal = open_terminal()
    await driver(Writer(table_lm(random_law(1))), **keywords)
    assert terminal.getvalue() == ""


def test_unasked_it_shows_after_two_seconds(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    clock = Clock()
    progress, record, particles = begin(None, clock), SMCRecord(1, keep_texts=False), [Text("x")]
    for clock.now in (1000.5, 1001.99):
        progress.show(step_of(record, particles), particles)
    assert terminal.getvalue() == ""
    clock.now = 1002.0
    progress.show(step_of(record, particles), particles)
    assert [line.split(",")[0] for line in terminal.lines] == ["SMC step 3 [0:02]"]


@pytest.mark.parametrize("wanted", [None, False])
def test_nothing_is_written_to_a_pipe(
    wanted: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    begin: Begin,
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    clock = Clock()
    progress, record, particles = begin(wanted, clock), SMCRecord(1, keep_texts=False), [Text("x")]
    for clock.now in (1001.0, 1010.0):
        progress.show(step_of(record, particles), particles)
        progress.show_paths(1, lambda: particles, 0)
    progress.close()
    assert capfd.readouterr() == ("", "")
    assert particles[0].shown == 0


def test_who_looks(monkeypatch: pytest.MonkeyPatch, open_terminal: OpenTerminal) -> None:
    shell = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not somebody_looks()  # IPython, its output piped
    shell.kernel = object()
    assert somebody_looks()  # a notebook
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not somebody_looks()
    open_terminal()
    assert somebody_looks()
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    assert not somebody_looks()


def test_a_notebook_without_widgets_gets_a_line_and_no_warning() -> None:
    code = """
import sys, types
shell = type("ZMQInteractiveShell", (), {"kernel": 1})()
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
sys.modules["ipywidgets"] = None
from hfppl.inference.progress import Progress
progress = Progress(None, iter([0, 3, 3, 3]).__next__)
progress.show_paths(7, lambda: [], 5)
progress.close()
"""
    run = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True)
    assert (run.returncode, run.stdout) == (0, b""), run.stderr
    assert run.stderr.strip(b"\r\n").split(b"\r") == [b"Paths, step 7 [0:03], 5 waiting"] * 2


# --- what it says


def test_the_line_tells_how_the_particles_fare(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    clock = Clock()
    progress, record = begin(True, clock), SMCRecord(4, keep_texts=False)
    particles = [
        Text("live", math.log(0.5), twist=2.0),
        Text("done", math.log(1.5), finished=True),
        Text("best", math.log(2.0)),
        Text("dead", -math.inf, finished=True),
    ]
    clock.now += 75
    step = step_of(record, particles)
    progress.show(step, particles)
    # The twist counts in the effective sample size, and in nothing else.
    assert terminal.lines == [
        f"SMC step 1 [1:15], 2 live, 1 finished, 1 dead, ESS {step.ess:.1f}, log Z 0.00, 'best'"
    ]
    assert step.log_mean_weight > 0.1


def test_all_dead(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    particles = [Text("a", -math.inf, finished=True)] * 2
    begin(True, Clock()).show(step_of(SMCRecord(2, keep_texts=False), particles), particles)
    assert terminal.lines == ["SMC step 1 [0:00], 2 dead, ESS 0.0, log Z -inf"]


def test_tokens_are_counted_from_each_ancestor_on(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    lm = table_lm(always(0.25, 0.25, 0.25, 0.25))
    clock = Clock()
    progress, record = begin(True, clock), SMCRecord(2, keep_texts=False)

    def population(*texts: str) -> list[Any]:
        particles = [Writer(lm) for _ in texts]
        for particle, text in zip(particles, texts, strict=True):
            for character in text:
                particle.context._append("abc.".index(character))
        return particles

    first = population("aa", "b")
    progress.show(step_of(record, first), first)  # how long these took is not known
    assert "tok/s" not in terminal.lines[-1]
    clock.now += 2
    second = population("aabcab", "aac")  # both continue the first: 4 + 1 tokens
    progress.show(step_of(record, second, [0, 0]), second)
    assert ", 2 tok/s, " in terminal.lines[-1]  # 2.5, rounded to even
    clock.now += 2
    third = population("aabcab", "aacaaaa")
    progress.show(step_of(record, third), third)  # 5 + 4 in four seconds
    assert ", 2 tok/s, " in terminal.lines[-1]
    clock.now += 1
    fourth = population("aabcab" + "a" * 20, "aacaaaa" + "b" * 21)
    progress.show(step_of(record, fourth), fourth)
    assert ", 10 tok/s, " in terminal.lines[-1]


def test_the_paths_of_an_enumeration(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    paths = [Text("x", math.log(0.125), finished=True), Text("y", math.log(0.375), finished=True), Text("z")]
    begin(True, Clock()).show_paths(2, lambda: paths, 40)
    assert terminal.lines == [
        f"Paths, step 2 [0:00], 40 waiting, 1 open, 2 finished, log Z so far {math.log(0.5):.2f}, 'y'"
    ]


def test_the_line_is_drawn_a_few_times_a_second_and_at_the_end(
    open_terminal: OpenTerminal, begin: Begin
) -> None:
    terminal = open_terminal()
    clock = Clock()
    progress, record, particles = begin(True, clock), SMCRecord(1, keep_texts=False), [Text("x")]
    for n in range(101):
        clock.now = 1000 + n / 64
        progress.show(step_of(record, particles), particles)
    assert particles[0].shown == 7  # at steps 1, 17, 33, ...
    progress.close()
    assert particles[0].shown == 8
    assert terminal.lines[-1].startswith("SMC step 101 ")
    assert terminal.getvalue().endswith("\n")


@pytest.mark.parametrize("columns", [20, 60, 100])
def test_the_line_is_no_wider_than_the_terminal(
    columns: int, open_terminal: OpenTerminal, begin: Begin
) -> None:
    terminal = open_terminal(columns)
    particles = [Text("long ago " * 50 + "日本語" * 10)]
    progress = begin(True, Clock())
    progress.show(step_of(SMCRecord(1, keep_texts=False), particles), particles)
    assert max(sum(2 if c in "日本語" else 1 for c in line) for line in terminal.lines) < columns
    assert ("語'" in terminal.lines[-1]) == (columns > 50)


def test_what_a_terminal_would_act_on_is_made_visible(open_terminal: OpenTerminal, begin: Begin) -> None:
    terminal = open_terminal()
    particles = [Text("a\x1b[2Jb\r\nc\x07\u202ed\ud800")]
    begin(True, Clock()).show(step_of(SMCRecord(1, keep_texts=False), particles), particles)
    assert terminal.lines[-1].endswith(r"'a\x1b[2Jb\r\nc\x07\u202ed\ud800'")
    assert terminal.getvalue().isprintable() is False  # of which tqdm's own carriage return is all
    assert terminal.getvalue().replace("\r", "").isprintable()


@pytest.mark.parametrize("device", [None, -1])  # it says 0, or it cannot be asked
def test_a_terminal_that_does_not_tell_its_size(
    device: int | None, open_terminal: OpenTerminal, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(0, 0)
    if device is not None:
        monkeypatch.setattr(terminal, "_device", device)
    particles = [Text("long ago " * 50)]
    begin(True, Clock()).show(step_of(SMCRecord(1, keep_texts=False), particles), particles)
    assert len(terminal.lines[-1]) == 79
