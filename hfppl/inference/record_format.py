"""Records as JSON: the format of this family's particle viewer, and what it lacks beside it.

The viewer reads a list of steps. Each has its number, a mode ("init", "smc_step" or "resample"; after
the latter `ancestors` hold), and for each particle its text, in which `<<<` and `>>>` enclose what is
new, its log-weight and the increment over its ancestor's, as strings.

Beside that, every step tells `ancestors`, `resampled`, `finished`, `ess`, `log_z` (so far), `seconds`
(since the start) and `new_from` (where in each text the new begins, in characters; null where the model
sets the marks itself), and the first one the `schema` number, `keep_texts`, and of the `run` what it was
asked to do.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .smc_record import RunInfo, SMCRecord, SMCStep

SCHEMA = 2  # the viewer's format, without a number, being the first
OPEN, CLOSE = "<<<", ">>>"

_RUN_TYPES: dict[str, Any] = {
    "model": str,
    "driver": str,
    "n_particles": int,
    "seed": int,
    "resampling_method": str | None,
    "ess_threshold": float | int | None,
    "n_beam": int | None,
}


def step_entry(record: SMCRecord, index: int) -> dict[str, Any]:
    """What the file says of the step at this index."""
    step = record.steps[index]
    before = record.steps[index - 1] if index else None
    ancestors = list(step.ancestors)
    old_weights = np.zeros(len(ancestors)) if before is None else before.log_weights[ancestors]
    with np.errstate(invalid="ignore"):
        increments = np.where(old_weights > -np.inf, step.log_weights - old_weights, -np.inf)
    texts = step.texts or ("",) * len(ancestors)
    marked = [_mark(text, old) for text, old in zip(texts, _old_texts(step, before), strict=True)]
    particles = [
        {"contents": contents, "logweight": weight, "weight_incr": increment}
        for (contents, _), weight, increment in zip(
            marked, _numbers(step.log_weights), _numbers(increments), strict=True
        )
    ]
    head = {"schema": SCHEMA, "keep_texts": record.keep_texts, "run": record.run and record.run._asdict()}
    return {
        "step": step.number,
        "mode": "init" if index == 0 else "resample" if step.resampled else "smc_step",
        **(head if index == 0 else {}),
        "seconds": step.seconds,
        "ess": step.ess,
        "log_z": _numbers(np.array([step.log_mean_weight]))[0],
        "resampled": step.resampled,
        "ancestors": ancestors,
        "finished": step.finished.tolist(),
        "new_from": [start for _, start in marked],
        "particles": particles,
    }


def step_line(record: SMCRecord, index: int) -> str:
    """`step_entry` as strict JSON, in ASCII."""
    return json.dumps(step_entry(record, index), allow_nan=False)


def join_lines(lines: Sequence[str]) -> Iterator[str]:
    """The pieces of a file from the steps' lines."""
    yield "[\n"
    for index, line in enumerate(lines):
        yield line if index == 0 else ",\n" + line
    yield "\n]\n"


def split_marks(text: str) -> tuple[str, int, int] | None:
    """A text that marks what is new itself, without the marks, and where the new begins and ends.

    None if the text has no such marks.
    """
    before, opened, rest = text.partition(OPEN)
    new, closed, after = rest.partition(CLOSE)
    if not opened or not closed:
        return None
    return before + new + after, len(before), len(before) + len(new)


def common_prefix(text: str, old: str) -> int:
    """How many characters two texts begin with in common."""
    if text.startswith(old):
        return len(old)
    shorter = min(len(text), len(old))
    return next((i for i in range(shorter) if text[i] != old[i]), shorter)


def _old_texts(step: SMCStep, before: SMCStep | None) -> Sequence[str]:
    """The texts of the particles that a step's particles continue."""
    if before is None or before.texts is None:
        return ("",) * len(step.ancestors)
    return [before.texts[ancestor] for ancestor in step.ancestors]


def _mark(text: str, old: str) -> tuple[str, int | None]:
    """A text with what is new marked, and where that begins; None if the text brings its own marks."""
    opens, closes = OPEN in text, CLOSE in text
    if opens and closes:
        return text, None
    start = common_prefix(text, old)
    if opens or closes:
        return f"{OPEN}{CLOSE}{text}", start  # one mark of its own would leave the reader lost
    return f"{text[:start]}{OPEN}{text[start:]}{CLOSE}", start


def _numbers(values: NDArray[np.float64]) -> list[str]:
    return ["-Infinity" if value == -math.inf else repr(value) for value in values.tolist()]


# --- reading


def read_record(path: str | os.PathLike[str]) -> SMCRecord:
    """What `SMCRecord.load` does."""
    with open(path, encoding="utf-8") as file:
        try:
            entries = json.load(file, parse_constant=_refuse)
        except ValueError as error:
            raise ArgumentError(f"{path} is not a record of a run: it is not JSON ({error})") from error
    try:
        return _read_entries(entries)
    except ValueError as error:
        raise ArgumentError(f"{path} is not a record of a run: {error}") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number there")


def _read_entries(entries: Any) -> SMCRecord:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("it must be a list of steps")
    if not entries:
        return SMCRecord(0, keep_texts=False)
    schema = entries[0].get("schema", 1)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise ValueError(f"its schema {schema!r} is not known here; a newer hfppl may read it")
    info = entries[0].get("run")
    record = SMCRecord(
        len(entries[0].get("particles", ())),
        keep_texts=entries[0].get("keep_texts", True) is True,
        run=None if info is None else _read_run(info),
    )
    for index, entry in enumerate(entries):
        try:
            record.steps.append(_read_step(entry, index, record.n_particles, record.keep_texts))
        except KeyError as error:
            raise ValueError(f"step {index + 1} does not say its {error}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"step {index + 1}: {error}") from error
    return record


def _read_run(info: Any) -> RunInfo:
    for name, kind in _RUN_TYPES.items():
        value = info.get(name) if isinstance(info, dict) else None
        if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"what it says of the run has the {name} {value!r}")
    return RunInfo(**{name: info.get(name) for name in _RUN_TYPES})


def _read_step(entry: dict[str, Any], index: int, n: int, keep_texts: bool) -> SMCStep:
    particles = entry["particles"]
    resampled = entry.get("resampled", entry["mode"] == "resample")
    if "ancestors" not in entry and entry["mode"] == "resample":
        raise KeyError("ancestors")
    ancestors = [int(ancestor) for ancestor in entry.get("ancestors", range(n))]
    log_weights = np.array([_read_weight(particle["logweight"]) for particle in particles], dtype=np.float64)
    # The older format does not tell who has finished; the dead have.
    finished = np.array(entry.get("finished", log_weights == -np.inf), dtype=bool)
    if not len(particles) == len(ancestors) == len(finished) == n:
        raise ValueError(f"it has not {n} particles, ancestors and finished flags, as the first step has")
    if not all(0 <= ancestor < n for ancestor in ancestors):
        raise ValueError(f"its ancestors are not all from 0 to {n - 1}")
    starts = entry.get("new_from", [None] * n)
    older = "new_from" not in entry
    texts = [_read_text(p["contents"], start, older) for p, start in zip(particles, starts, strict=True)]
    seconds = entry.get("seconds")
    if seconds is not None and not math.isfinite(seconds):
        raise ValueError(f"its seconds are {seconds}")
    return SMCStep(
        number=index + 1,
        ancestors=tuple(ancestors),
        resampled=bool(resampled),
        log_weights=log_weights,
        finished=finished,
        texts=tuple(texts) if keep_texts else None,
        seconds=None if seconds is None else float(seconds),
    )


def _read_weight(value: Any) -> float:
    weight = -math.inf if value is None else float(value)  # some writers of the older format put null
    if math.isnan(weight) or weight == math.inf:
        raise ValueError(f"a log-weight is {value}, which must be finite or -Infinity")
    return weight


def _read_text(contents: str, start: int | None, older: bool) -> str:
    if start is None and not older:
        return contents
    if contents.startswith(OPEN + CLOSE):
        return contents[len(OPEN + CLOSE) :]
    if start is None:
        return contents
    return contents[:start] + contents[start + len(OPEN) : -len(CLOSE)]
