"""A line that tells, while a run goes on, how its particles fare."""

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..display import visible
from ..numerics import logsumexp
from .smc_record import SMCStep
from .weights import log_mean

_UNASKED_DELAY = 2.0  # seconds a run lasts before a line appears that nobody has asked for
_INTERVAL = 0.25  # seconds between two drawings, so that watching costs next to nothing
_TEXT_COLUMNS = 60  # of the best text, where there is room
_LEAST_COLUMNS = 10  # with less room, there is no text


class Progress:
    """A line on a tqdm bar, drawn anew a few times a second; nothing where nobody looks.

    It only ever reads the particles: a run is the same whether it is watched or not.
    """

    def __init__(self, wanted: bool | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the run.

        Args:
            wanted: True shows the line, False does not; None shows it in a terminal or a notebook, once
                the run has lasted two seconds.
            clock: tells the time, in seconds.
        """
        self._shown = somebody_looks() if wanted is None else wanted
        self._clock = clock
        self._began = clock()
        self._draw_after = self._began + (_UNASKED_DELAY if wanted is None else 0.0)
        self._tokens = _TokenRate()
        self._bar: Any = None
        self._latest: Callable[[], tuple[str, str | None]] | None = None  # what has not been drawn yet

    def show(self, step: SMCStep, particles: Sequence[Any]) -> None:
        """A population that has just taken a step."""
        if not self._shown:
            return
        self._tokens.count(self._clock(), step, particles)
        log_weights = step.log_weights - np.array([particle._twist for particle in particles])
        alive = log_weights > -np.inf

        def compose() -> tuple[str, str | None]:
            kinds = {"live": alive & ~step.finished, "finished": alive & step.finished, "dead": ~alive}
            counts = [f"{kind.sum()} {name}" for name, kind in kinds.items() if kind.any()]
            numbers = [f"ESS {step.ess:.1f}", f"log Z {log_mean(log_weights):z.2f}", *self._tokens.in_words()]
            best = particles[int(log_weights.argmax())] if alive.any() else None
            return ", ".join([f"SMC step {step.number} {self._elapsed()}", *counts, *numbers]), _text(best)

        self._offer(compose)

    def show_paths(self, step: int, paths: Callable[[], Sequence[Any]], n_waiting: int) -> None:
        """The paths of an enumeration.

        Args:
            step: the number of the step being taken.
            paths: gives the particles that have taken it, or have finished before.
            n_waiting: how many are still to take it.
        """
        if not self._shown:
            return

        def compose() -> tuple[str, str | None]:
            particles = paths()
            finished = [particle for particle in particles if particle.done_stepping()]
            counts = {"waiting": n_waiting, "open": len(particles) - len(finished), "finished": len(finished)}
            parts = [f"{count} {name}" for name, count in counts.items() if count]
            if finished:
                parts.append(f"log Z so far {logsumexp([particle.weight for particle in finished]):z.2f}")
            best = max(finished, key=lambda particle: particle.weight, default=None)
            return ", ".join([f"Paths, step {step} {self._elapsed()}", *parts]), _text(best)

        self._offer(compose)

    def close(self) -> None:
        """Show how it stood at the end, if it was shown before or is due, and leave the line there."""
        if self._latest is not None and (self._bar is not None or self._clock() >= self._draw_after):
            self._draw(self._latest)
        if self._bar is not None:
            self._bar.close()

    def _offer(self, compose: Callable[[], tuple[str, str | None]]) -> None:
        self._latest = compose
        now = self._clock()
        if now >= self._draw_after:
            self._draw(compose)
            self._draw_after = now + _INTERVAL

    def _draw(self, compose: Callable[[], tuple[str, str | None]]) -> None:
        if self._bar is None:
            self._bar = _new_bar()
        self._latest = None
        numbers, text = compose()
        room = _TEXT_COLUMNS
        if (width := terminal_columns()) is not None:
            self._bar.ncols = width - 1  # where tqdm cuts the line off
            room = min(room, width - 1 - len(numbers) - len(", "))
        if text is not None and room >= _LEAST_COLUMNS:
            numbers += ", " + visible(text, room, end=True)
        self._bar.set_description_str(numbers)

    def _elapsed(self) -> str:
        seconds = int(self._clock() - self._began)
        return f"[{seconds // 60}:{seconds % 60:02}]"


class _TokenRate:
    """Tokens a second, from the first step on."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._began = self._now = 0.0
        self._total = 0

    def count(self, now: float, step: SMCStep, particles: Sequence[Any]) -> None:
        """Add what each particle has drawn since its ancestor's last step."""
        before, self._counts = self._counts, [particle._token_count() for particle in particles]
        self._now = now
        if not before:
            self._began = now
            return
        pairs = zip(self._counts, step.ancestors, strict=True)
        self._total += sum(max(0, count - before[ancestor]) for count, ancestor in pairs)

    def in_words(self) -> list[str]:
        """One entry; none if there is nothing to count."""
        if not self._total or self._now <= self._began:
            return []
        return [f"{self._total / (self._now - self._began):.0f} tok/s"]


def somebody_looks() -> bool:
    """Whether messages go to a terminal or a notebook, and not to a file, a pipe or nowhere."""
    if terminal_columns() is not None:
        return True
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def terminal_columns() -> int | None:
    """The width of the terminal that messages go to, 80 if it does not tell; None if there is none."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _text(particle: Any) -> str | None:
    """What a particle shows; a user's `__str__` that fails must not end the run."""
    if particle is None:
        return None
    try:
        return str(particle)
    except Exception as error:
        return f"{type(error).__name__} in {type(particle).__name__}.__str__"


def _new_bar() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's, that a notebook without ipywidgets gets a line of text
        from tqdm.auto import tqdm
    return tqdm(bar_format="{desc}", nrows=24)  # some terminals say they have no rows, and would get nothing
