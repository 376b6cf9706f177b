"""Where a picture is looked at: below a notebook's cell, or in the browser."""

import html
import os
import sys
from pathlib import Path

from ..inference.record_file import write_whole
from ..inference.smc_record import SMCRecord
from .page import to_html

_HEIGHT = 600  # pixels


class Picture:
    """The picture of a run, which a notebook displays.

    Attributes:
        path: the file it was saved in; None if it was not.
    """

    def __init__(self, record: SMCRecord, path: str | os.PathLike[str] | None = None) -> None:
        """Args: the picture is saved at `path` if one is given."""
        self._title = (
            f"Run of {record.run.model if record.run else 'a model'}: "
            f"{record.n_particles} particles, {len(record.steps)} step{'s' * (len(record.steps) != 1)}"
        )
        self._page = to_html(record)
        self.path = None if path is None else write_whole(path, [self._page])

    def __repr__(self) -> str:
        return f"<{self._title}{'' if self.path is None else f', drawn in {self.path}'}>"

    def _repr_html_(self) -> str:
        # In a frame of its own, whose scripts cannot reach the notebook.
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        return (
            f'<iframe title="{html.escape(self._title)}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{html.escape(self._page)}"></iframe>'
        )

    def open(self) -> bool:
        """Open the saved picture in a browser that has a window.

        Returns:
            Whether there was one.
        """
        import webbrowser

        if self.path is None or not _has_windows():
            return False
        return webbrowser.open(self.path.resolve().as_uri())


def show(record: SMCRecord, path: str | os.PathLike[str] | None = None) -> Picture:
    """What `SMCRecord.show` does."""
    if path is None and not in_notebook():
        import tempfile

        path = Path(tempfile.mkdtemp(prefix="hfppl-")) / "run.html"
    picture = Picture(record, path)
    if not in_notebook():
        opened = picture.open()
        sys.stderr.write(f"The picture of the run is in {picture.path}{'' if opened else ': open it'}\n")
    return picture


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


def _has_windows() -> bool:
    """Whether a browser could open a window here; on a bare terminal it would take the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
