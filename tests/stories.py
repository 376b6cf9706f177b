"""Records made by hand, to draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hfppl import Model, SMCRecord
from hfppl.inference import RunInfo


class Shows(Model):
    """A particle that shows a text."""

    def __init__(self, text: str = "", weight: float = 1.0, finished: bool = False) -> None:
        super().__init__()
        self.text, self.finished = text, finished
        with np.errstate(divide="ignore"):
            self.weight = float(np.log(weight))

    def string_for_serialization(self) -> str:
        return self.text


def record_of(*steps: tuple[Sequence[Shows], Sequence[int] | None], texts: bool = True) -> SMCRecord:
    """A record made by hand: the particles of each step, and whom they continue if that was drawn."""
    n = len(steps[0][0])
    record = SMCRecord(n, texts, RunInfo("Story", "smc_standard", n, 11, "stratified", 0.5))
    for particles, ancestors in steps:
        record.add(particles, range(n) if ancestors is None else ancestors, ancestors is not None)
    return record


def story() -> SMCRecord:
    """Three particles: the second dies, the third takes its place, and all but it finish."""
    return record_of(
        ([Shows("one "), Shows("two ", 0.5), Shows("three ", 2.0)], None),
        ([Shows("one mouse "), Shows("two ", 0.0, True), Shows("three mice ", 4.0)], None),
        (
            [Shows("one mouse ran", 1, True), Shows("three mice see"), Shows("three mice run", 2, True)],
            [0, 2, 2],
        ),
    )


HOSTILE = [
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<!-- <script>",
    "]]>&lt;b&gt;&amp;{{data}}",
    "a\u2028b\u2029c",
    "safe \u202egnp.exe\u202c \u2066x\u2069",
    "half \ud83d",
    "nul \0 bell \a tab \t line\nend \x7f \x85",
    "zero\u200bwidth\ufeff \U000e0041",
    "שלום \U0001f468\u200d\U0001f469 e\u0301 \U0001f600",
    "javascript:window.hit=1",
    "<<<new>>> old",
]


def hostile_record() -> SMCRecord:
    record = record_of(
        ([Shows(text) for text in HOSTILE], None),
        ([Shows(text + more) for text, more in zip(HOSTILE, HOSTILE[1:] + HOSTILE[:1], strict=True)], None),
    )
    record.run = RunInfo("</title><script>window.hit = 1</script>\u202e", HOSTILE[1], 12, 1, HOSTILE[0], 0.5)
    return record
