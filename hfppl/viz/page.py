"""One HTML page, which holds all it needs and asks nobody for anything."""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from ..inference.smc_record import SMCRecord
from .page_data import page_data

# In the order they are read in; together they are one function, so that the page has no global names.
_SCRIPTS = ("run.js", "text.js", "layout.js", "genealogy.js", "curves.js", "panel.js", "main.js")


def to_html(record: SMCRecord) -> str:
    """The picture of a record, as one HTML page.

    Whatever the record's texts hold, they are data: they stand in a block of JSON that cannot end
    early, the page puts them into text nodes only, and its policy lets no other script run and nothing
    be loaded.
    """
    style = _asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_asset, _SCRIPTS)) + "\n})();\n"
    parts = {
        "{{policy}}": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
        "{{style}}": style,
        "{{script}}": script,
        "{{data}}": _json_for_html(page_data(record)),  # the last: what it holds is not looked through
    }
    page = _asset("page.html")
    for name, part in parts.items():
        page = page.replace(name, part, 1)
    return page


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json_for_html(data: Any) -> str:
    """Strict JSON in ASCII, without a character that means something to HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
