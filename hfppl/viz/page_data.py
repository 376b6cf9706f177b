"""A record as the page reads it: small, and every text said once.

A particle's text is told by how much of its ancestor's it keeps and what follows, `[kept, rest]`, and,
where the model marks what is new itself, also by where that begins and ends. Offsets count UTF-16
units, as JavaScript does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..inference.record_format import common_prefix, split_marks
from ..inference.smc_record import SMCRecord, SMCStep

_DIGITS = 4  # of a log-weight, after the point: more than a picture shows


def page_data(record: SMCRecord) -> dict[str, Any]:
    """What the page needs to know of a record, fit for strict JSON.

    Steps have `ancestors` (null for the identity), `resampled`, `logWeights` (null for -inf),
    `finished` (numbers of particles), `texts` (null if they were not kept), `seconds`, `ess`, `logZ`.
    """
    shown_before: list[str] = [""] * record.n_particles
    steps = []
    for index, step in enumerate(record.steps):
        ancestors = list(step.ancestors) if index else list(range(len(step.ancestors)))
        texts = None
        if step.texts is not None:
            texts, shown_before = _texts(step.texts, [shown_before[ancestor] for ancestor in ancestors])
        steps.append(_step(step, ancestors, texts))
    return {
        "n": record.n_particles,
        "run": record.run and record.run._asdict(),
        "keepTexts": record.keep_texts,
        "steps": steps,
    }


def _step(step: SMCStep, ancestors: list[int], texts: list[list[Any]] | None) -> dict[str, Any]:
    return {
        "ancestors": None if ancestors == list(range(len(ancestors))) else ancestors,
        "resampled": step.resampled,
        "logWeights": _numbers(step.log_weights),
        "finished": np.flatnonzero(step.finished).tolist(),
        "texts": texts,
        "seconds": step.seconds,
        "ess": step.ess,
        "logZ": None if step.log_mean_weight == -np.inf else step.log_mean_weight,
    }


def _texts(texts: Sequence[str], old_texts: Sequence[str]) -> tuple[list[list[Any]], list[str]]:
    """The texts as the page reads them, and as it shows them."""
    told: list[list[Any]] = []
    shown = []
    for text, old in zip(texts, old_texts, strict=True):
        marked = split_marks(text)
        plain = text if marked is None else marked[0]
        kept = common_prefix(plain, old)
        told.append([_utf16(plain[:kept]), plain[kept:]])
        if marked is not None:
            told[-1] += [_utf16(plain[: marked[1]]), _utf16(plain[: marked[2]])]
        shown.append(plain)
    return told, shown


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [None if value == -np.inf else value for value in np.round(values, _DIGITS).tolist()]


def _utf16(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)
