"""Text and probabilities made fit to look at: in a terminal, in a notebook, in a picture.

What a language model wrote is data. It is never markup, and no character of it is invisible, moves
what stands beside it, or breaks a line: such a character is shown by its escape, as `repr` writes it.
"""

import html
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Seen on white and on black alike; what is less important is written in the notebook's own colour, faintly.
_BLUE = "#4a8fd0"
_FAINT = "opacity:.65"
_CELL = "text-align:left;padding:.15em .6em;vertical-align:middle;border:none"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;background:none;color:inherit;padding:0"


class Bars(NamedTuple):
    """Outcomes and their probabilities.

    Attributes:
        rows: labels, fit to be shown, and probabilities, in the order to show them in.
        rest: a label and a probability for all that is not among them; None if nothing is left.
    """

    rows: list[tuple[str, float]]
    rest: tuple[str, float] | None = None

    def in_words(self, top: int) -> str:
        """The first few on one line."""
        shown = [f"{label} {p:.3g}" for label, p in self.rows[:top]]
        return ", ".join(shown + ["..."] * (self.rest is not None or len(self.rows) > top))


def likeliest(probabilities: NDArray[np.float64], label: Callable[[int], str], top: int = 10) -> Bars:
    """The likeliest of K outcomes, the first on a tie; what is impossible is left out.

    Args:
        probabilities: (K,).
        label: what an index is called.
        top: how many to show.
    """
    order = np.argsort(-probabilities, kind="stable")[:top]
    shown = [int(i) for i in order if probabilities[i] > 0]
    rows = [(label(i), float(probabilities[i])) for i in shown]
    n_others = int(np.count_nonzero(probabilities)) - len(rows)
    others = float(probabilities.sum()) - sum(p for _, p in rows)
    return Bars(rows, (f"{n_others:,} more", max(0.0, others)) if n_others else None)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "FW" else 1 for c in text
    )


def visible(text: str, limit: int = 100, end: bool = False) -> str:
    """A text as a Python string literal on one line, shortened to `limit` columns.

    Args:
        text: anything.
        limit: at least 10.
        end: keep the end of what is too long, not the beginning.
    """
    if len(text) <= limit and columns(repr(text)) <= limit:
        return repr(text)
    room, kept = limit - len("'... '"), 0
    for character in text[: -limit - 1 : -1] if end else text[:limit]:
        room -= 2 if character in "'\"" else columns(repr(character)) - 2
        if room < 0:
            break
        kept += 1
    return repr(f"... {text[len(text) - kept :]}" if end else f"{text[:kept]} ...")


def token_label(data: bytes) -> str:
    """The bytes of a token as a Python literal: a string where they are whole characters."""
    try:
        return visible(data.decode(), 40)
    except UnicodeDecodeError:
        return repr(data)


# --- for notebooks


def note(text: str) -> str:
    """A line beside what matters, as HTML."""
    return f"<div style='{_FAINT}'>{html.escape(text)}</div>"


def bars_html(bars: Bars) -> str:
    """A table: probability, bar, label. The longest bar is the likeliest outcome."""
    longest = max((p for _, p in bars.rows), default=0.0) or 1.0
    rows = [_row(p, f"<code style='{_TEXT}'>{html.escape(label)}</code>", longest) for label, p in bars.rows]
    if bars.rest is not None:
        label, p = bars.rest
        rows.append(_row(p, f"<span style='{_FAINT}'>{html.escape(label)}</span>", None))
    return f"<table style='margin:.3em 0;table-layout:auto;border-collapse:collapse'>{''.join(rows)}</table>"


def _row(probability: float, label: str, longest: float | None) -> str:
    bar = ""
    if longest is not None:
        width = 100 * probability / longest
        bar = f"<div style='width:{width:.1f}%;min-width:1px;height:.75em;background:{_BLUE}'></div>"
    return (
        f"<tr><td style='{_CELL}'>{probability:.4f}</td>"
        f"<td style='{_CELL};width:10em;min-width:10em'>{bar}</td>"
        f"<td style='{_CELL}'>{label}</td></tr>"
    )


def prompt_and_text_html(prompt: str, text: str) -> str:
    """A generation: the prompt faint, the text after it on a tinted ground, lines broken where they break."""
    return (
        "<div style='white-space:pre-wrap;overflow-wrap:anywhere;max-width:60em'>"
        f"<bdi style='{_FAINT}'>{_marked(prompt, 500)}</bdi>"
        f"<bdi style='background:{_BLUE}33'>{_marked(text, 5000)}</bdi></div>"
    )


def _marked(text: str, limit: int) -> str:
    """The end of a text as HTML; what cannot be seen is shown by its escape, in italics."""
    shown = [_marked_character(c) for c in text[-limit:]]
    return "".join([f"<i style='{_FAINT}'>... </i>"] * (len(text) > limit) + shown)


def _marked_character(character: str) -> str:
    if character.isprintable():
        return html.escape(character)
    escape = f"<i style='{_FAINT}'>{repr(character)[1:-1]}</i>"
    return escape + "\n" if character == "\n" else escape
