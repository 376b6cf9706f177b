"""Where files are kept between processes."""

import os
from pathlib import Path

from ..errors import ModelUnavailableError


def cache_folder() -> Path:
    """`HFPPL_CACHE_DIR` if set, else `hfppl` in `XDG_CACHE_HOME` or in `~/.cache`; it need not exist yet.

    Raises:
        ModelUnavailableError: if there is not even a home folder.
    """
    try:
        if named := os.environ.get("HFPPL_CACHE_DIR"):
            return Path(named).expanduser().absolute()
        shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The XDG rules say that a relative path is to be ignored.
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "hfppl"
    except RuntimeError as error:
        raise ModelUnavailableError(
            "there is no home folder to keep the default model in: set HFPPL_CACHE_DIR to a writable folder"
        ) from error
