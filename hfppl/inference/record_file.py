"""The file that a run's record is kept in while the run goes on."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .smc_record import SMCRecord

_PAUSE = 1.0  # seconds between writes, at least
_SHARE = 0.05  # of the time that passes, at most so much is spent on writing


class RecordFile:
    """A file that follows a record: never half written, and whatever happens, it holds the last state.

    Each step is put into JSON once; a write joins what is there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        record: SMCRecord,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path)
        self._record = record
        self._clock = clock
        self._lines: list[str] = []
        self._due = clock()

    def update(self) -> None:
        """Write the record, unless that was done a moment ago.

        What cannot be written now is written later: only the last `write` must not fail.
        """
        began = self._clock()
        if began < self._due:
            return
        with contextlib.suppress(OSError):
            self.write()
        self._due = self._clock() + max(_PAUSE, (self._clock() - began) / _SHARE)

    def write(self) -> None:
        """Write the record as it is.

        Raises:
            OSError: if that cannot be done.
        """
        from .record_format import join_lines, step_line  # late, as is all that only a record needs

        for index in range(len(self._lines), len(self._record.steps)):
            self._lines.append(step_line(self._record, index))
        write_whole(self._path, join_lines(self._lines))


def write_whole(path: str | os.PathLike[str], pieces: Iterable[str]) -> Path:
    """Write a file, in UTF-8, whole or not at all: a reader finds the old one or the new one.

    Folders that are missing are made.

    Returns:
        Where it is.

    Raises:
        OSError: if it cannot be written.
    """
    import uuid

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    place = Path(os.path.realpath(target))  # a link stays one
    temporary = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)
        os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target


def record_path(
    model_name: str,
    visualization_dir: str | os.PathLike[str] | None,
    json_file: str | os.PathLike[str] | None,
) -> Path | None:
    """Where a run's record goes: `json_file`, within `visualization_dir` if given; None for nowhere."""
    if visualization_dir is None:
        return None if json_file is None else Path(json_file)
    if json_file is None:
        from datetime import datetime

        json_file = f"{model_name}-{datetime.now():%Y%m%d-%H%M%S-%f}.json"
    return Path(visualization_dir) / json_file
