"""What has been timed on this machine, remembered between processes.

A timing decides which of two kernels multiplies, and kernels round differently. Decided anew in every
process, a seed would not give the same draws twice; so what was found first stays, until its file,
`kernels.json` in the cache folder, is deleted.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

Verdict = tuple[bool, ...]


class Verdicts:
    """Timed decisions by name, in a file. Where the folder cannot be written, they last for one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._read()

    def get(self, name: str, find: Callable[[], Verdict]) -> Verdict:
        """The decision of a name, found now if it never was."""
        if name not in self._known:
            found = find()
            self._known = self._read() | {name: found}  # another process may have added some meanwhile
            self._write()
        return self._known[name]

    def _read(self) -> dict[str, Verdict]:
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(name): tuple(bool(each) for each in verdict) for name, verdict in entries.items()}
        except (OSError, ValueError, AttributeError, TypeError):  # none yet, or not ours: time anew
            return {}

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(self._known, file, indent=1, sort_keys=True)
            os.replace(temporary, self._path)
