"""Pictures: what is drawn is what was given, whatever the texts, and nothing else is touched."""

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tables import always, random_law, table_lm

from hfppl import (
    Bernoulli,
    HfpplError,
    LMContext,
    Model,
    Particles,
    SMCRecord,
    enumerate_exact,
    plot,
    smc_standard,
    smc_steer,
)
from hfppl.display import columns
from hfppl.errors import ArgumentError, MissingLibraryError, NoMassError, NumericalError
from hfppl.glyphs import drawable


class Given:
    """A particle with a text and a weight."""

    def __init__(self, text: Any, weight: float, finished: bool = True) -> None:
        self.text, self.weight, self.finished = text, weight, finished

    def done_stepping(self) -> bool:
        return self.finished

    def untwist(self) -> None: ...

    def __str__(self) -> str:
        return str(self.text)


class Coins(Model):
    """Twelve coins, some of which cost weight."""

    def __init__(self, dies: bool = False) -> None:
        super().__init__()
        self.n = 0
        self.dies = dies

    async def step(self) -> None:
        self.n += 1
        self.score(-2.0 * (await self.sample(Bernoulli(0.5))))
        if self.n == 12:
            self.condition(not self.dies)
            self.finish()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    settings = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == settings
    plt.close("all")


def draw(ax: Any) -> Any:
    """Its figure, drawn for real: what matplotlib warns of, it warns of here."""
    ax.figure.canvas.draw()
    return ax.figure


def labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def widths(ax: Any, series: int = 0) -> list[float]:
    return [bar.get_width() for bar in ax.containers[series]]


def numbers(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


# --- matplotlib is asked for late


def test_the_package_works_without_matplotlib() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import hfppl.plot
from hfppl import Particles, plot
assert plot is hfppl.plot
class Given:
    weight = 0.0
    def done_stepping(self): return True
try:
    plot.posterior(Particles([Given()]))
except ImportError as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr == ""
    assert run.stdout.startswith("MissingLibraryError ")
    assert 'pip install "hfppl[plot]"' in run.stdout


def test_importing_the_package_loads_no_matplotlib() -> None:
    code = "import sys, hfppl, hfppl.plot; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_the_error_is_one_of_ours() -> None:
    assert issubclass(MissingLibraryError, HfpplError)


# --- where it is drawn


def test_the_axes_given_are_drawn_on_and_returned() -> None:
    lm = table_lm(always(0.5, 0.25, 0.125, 0.125))
    record = SMCRecord(1, keep_texts=False)
    record.add([Given("x", 0.0)], [0], False)
    for function, arguments in [
        (plot.posterior, (Particles([Given("x", 0.0)]),)),
        (plot.next_tokens, (LMContext(lm, "a"),)),
        (plot.trace, (record,)),
    ]:
        ax = Figure().subplots()
        assert function(*arguments, ax=ax) is ax
        draw(ax)
        assert plt.get_fignums() == []
        assert draw(function(*arguments)).number == plt.get_fignums()[0]
        plt.close("all")


# --- the trace


async def test_a_trace_is_that_of_the_record() -> None:
    run = await smc_standard(Coins(), 20, seed=1, ess_threshold=0.6)
    steps = run.record.steps
    assert [step.number for step in steps if step.resampled]  # otherwise this shows little
    for given in (run, run.record):
        ax = plot.trace(given)
        figure = draw(ax)
        ess, resampled = ax.get_lines()
        (log_z,) = figure.axes[1].get_lines()
        assert ess.get_xdata().tolist() == log_z.get_xdata().tolist() == list(range(1, 13))
        assert ess.get_ydata().tolist() == [step.ess for step in steps]
        assert log_z.get_ydata().tolist() == [step.log_mean_weight for step in steps]
        assert resampled.get_xdata().tolist() == [step.number - 0.5 for step in steps if step.resampled]
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ESS", "log Z", "resampled"]
        assert ax.get_ylim()[1] > 20
        assert all(float(tick).is_integer() for tick in ax.get_xticks())


async def test_a_trace_of_few_steps_and_of_the_dead() -> None:
    dead = await smc_standard(Coins(dies=True), 5, seed=1)
    assert dead.record.steps[-1].log_mean_weight == -math.inf
    ax = plot.trace(dead)
    log_z = draw(ax).axes[1].get_lines()[0].get_ydata()
    assert np.isnan(log_z[-1])
    assert np.isfinite(log_z[:-1]).all()
    one = await smc_steer(Coins(), 2, 2, seed=1, max_steps=1)
    ax = plot.trace(one)
    draw(ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ESS", "log Z"]


async def test_without_steps_there_is_no_trace() -> None:
    exact = await enumerate_exact(Coins(), max_steps=2)
    for given in (exact, SMCRecord(3)):
        with pytest.raises(ArgumentError, match="no step to draw"):
            plot.trace(given)
    assert plt.get_fignums() == []


# --- the posterior


def test_a_posterior_is_drawn_from_the_most_probable_down() -> None:
    particles = Particles([Given(f"text {i}", math.log(i)) for i in range(1, 6)])
    ax = plot.posterior(particles, top=3)
    draw(ax)
    assert labels(ax) == ["'text 5'", "'text 4'", "'text 3'", "(2 more)"]
    assert widths(ax) == pytest.approx([5 / 15, 4 / 15, 3 / 15, 0])
    assert numbers(ax) == ["0.333", "0.267", "0.200", "0.200"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top
    assert ax.get_legend() is None
    whole = plot.posterior(particles)
    assert labels(whole) == [f"'text {i}'" for i in (5, 4, 3, 2, 1)]


def test_a_posterior_of_something_else_than_text() -> None:
    ax = plot.posterior(
        Particles([Given(2, 0.0), Given("x" * 99, 0.0), Given(None, 1.0)]), key=lambda p: p.text
    )
    draw(ax)
    assert labels(ax)[:2] == ["None", "2"]
    assert columns(labels(ax)[2]) == 40


def test_nobody_left_is_an_error_that_says_so() -> None:
    with pytest.raises(NoMassError, match=r"1 of 2 are dead, 1 unfinished"):
        plot.posterior(Particles([Given("x", -math.inf), Given("y", 0.0, False)]))
    with pytest.raises(ArgumentError, match="top is how many"):
        plot.posterior(Particles([Given("x", 0.0)]), top=0)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    "text",
    [
        "$x^2$ costs $\\frac{$",
        "$5 or $6 ^_{}%#&~",
        "日本語のテキスト",
        "한국어 हिन्दी ไทย",
        "שלום مرحبا",
        "🧠👩\u200d💻 😀",
        "\u202eback\x1b[2J\x00\n\t",
        "\ud800 half \ufffd",
        "e\u0301" * 50,
        "W" * 500,
        "\U0010fffd\ue000",
        "",
    ],
)
def test_every_text_is_drawn_as_it_is_or_by_its_escapes(text: str) -> None:
    ax = plot.posterior(Particles([Given(text, 0.0)]))
    figure = draw(ax)  # a glyph that no font has would be a warning, and so an error
    (label,) = labels(ax)
    assert label.isprintable()
    assert columns(label) <= 40
    box = ax.get_yticklabels()[0].get_window_extent()
    assert box.x0 >= 0  # it is all in the picture, and the bars have room beside it
    assert ax.get_window_extent().width > 0.25 * figure.bbox.width


def test_what_no_font_has_is_escaped_and_shortened() -> None:
    texts, families = drawable(["'a\U0010fffdb'", "'c'"], 40)
    assert texts == [r"'a\U0010fffdb'", "'c'"]
    assert families == list(mpl.rcParams["font.family"])
    (shortened,), _ = drawable(["'" + "\U0010fffd" * 10 + "'"], 40)
    assert shortened == "'" + r"\U0010fffd" * 3 + " ...'"


def test_a_character_is_looked_for_in_other_fonts() -> None:
    script = "\U0001d49e"  # 𝒞, of which matplotlib's own fonts have one outside DejaVu Sans
    with mpl.rc_context({"font.family": ["DejaVu Sans Mono"]}):
        texts, families = drawable([script], 40)
        assert (texts, families[0]) == ([script], "DejaVu Sans Mono")
        assert len(families) == 2


# --- next tokens


def test_next_tokens_of_logits() -> None:
    lm = table_lm(always(*[0.25] * 4), ["a", b"\xe2\x96", "<b>$x$", "."])
    ax = plot.next_tokens(lm, np.log([0.5, 0.3, 0.2, 0.0 + 1e-9]) + 7.0, top=3)
    draw(ax)
    assert labels(ax) == ["'a'", r"b'\xe2\x96'", "'<b>$x$'", "(1 more)"]
    assert widths(ax) == pytest.approx([0.5, 0.3, 0.2, 0])
    assert numbers(ax) == ["0.500", "0.300", "0.200", "1e-09"]


def test_guided_beside_unguided() -> None:
    lm = table_lm(always(*[0.25] * 4))
    free = [math.log(0.6), math.log(0.3), math.log(0.1), -math.inf]
    guided = [-math.inf, math.log(0.3), math.log(0.1), -math.inf]
    ax = plot.next_tokens(lm, free, guided)
    draw(ax)
    assert labels(ax) == ["'b'", "'a'", "'c'"]  # by the larger of the two
    assert widths(ax, 0) == pytest.approx([0.3, 0.6, 0.1])
    assert widths(ax, 1) == pytest.approx([0.75, 0.0, 0.25])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["unguided", "guided"]
    colours = [to_hex(container[0].get_facecolor()) for container in ax.containers]
    assert len(set(colours)) == 2
    few = plot.next_tokens(lm, free, guided, top=1)
    assert labels(few) == ["'b'", "(2 more)"]
    assert numbers(few) == ["0.300", "0.700", "0.750", "0.250"]


async def test_the_next_tokens_of_a_context() -> None:
    lm = table_lm(random_law(2))
    context = LMContext(lm, "a", temp=0.5)
    expected = np.exp(context.next_token_logprobs)
    ax = plot.next_tokens(context)
    draw(ax)
    assert widths(ax) == pytest.approx(sorted(expected, reverse=True))
    await context.mask_dist([0, 2]).log_prob(True)
    ax = plot.next_tokens(context)
    draw(ax)
    shown = ["'a'", "'b'", "'c'", "'.'"]
    for series, wanted in enumerate([expected, np.exp(context.next_token_logprobs)]):
        assert dict(zip(labels(ax), widths(ax, series), strict=True)) == pytest.approx(
            dict(zip(shown, wanted, strict=True))
        )
    assert context.model_mask == lm.token_mask([0, 2])
    given = plot.next_tokens(context, np.zeros(4))
    assert len(given.containers) == 1


def test_nothing_possible_is_drawn_as_nothing() -> None:
    lm = table_lm(always(*[0.25] * 4))
    ax = plot.next_tokens(lm, np.zeros(4), np.full(4, -np.inf))
    draw(ax)
    assert widths(ax, 1) == [0] * 4
    with pytest.raises(NoMassError, match="nothing to draw"):
        plot.next_tokens(lm, np.full(4, -np.inf))


def test_logits_that_cannot_be_right() -> None:
    lm = table_lm(always(*[0.25] * 4))
    with pytest.raises(ArgumentError, match="there are no logits"):
        plot.next_tokens(lm)
    with pytest.raises(ArgumentError, match=r"guided holds .* each of the 4 token ids.*\(3,\)"):
        plot.next_tokens(lm, np.zeros(4), np.zeros(3))
    with pytest.raises(NumericalError):
        plot.next_tokens(lm, [0.0, math.nan, 0.0, 0.0])
    assert plt.get_fignums() == []
