"""What MkDocs calls when these pages are built: draws the run that one shows."""

from pathlib import Path
from typing import Any

from hfppl import SMCRecord


def on_post_build(config: Any) -> None:
    """Put the picture of `assets/run.json` beside it, as hfppl draws it now."""
    SMCRecord.load(Path(config.docs_dir) / "assets/run.json").save_html(
        Path(config.site_dir) / "assets/run.html"
    )
