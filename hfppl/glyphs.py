"""Which characters of a text matplotlib can draw, and with which fonts.

matplotlib's own font knows neither Chinese nor most emoji; where it has no picture it warns and draws a
box. Here other fonts of the machine are looked through, and a character that none of them has is
written as its escape.
"""

import os
from collections.abc import Sequence

from .display import columns

_NOT_A_FONT = "Last Resort"  # comes with matplotlib, and has a box for everything


def drawable(texts: Sequence[str], limit: int) -> tuple[list[str], list[str]]:
    """Texts that can be drawn without a gap, and the font families to draw them with.

    Args:
        texts: any, without line breaks or control characters.
        limit: columns of a text. One that escapes make longer loses what stands before its last character.

    Returns:
        The texts; the families, those set in matplotlib's `rcParams` first.
    """
    import matplotlib
    from matplotlib.font_manager import FontProperties, findfont

    families = list(matplotlib.rcParams["font.family"])
    missing = {c for text in texts for c in text}
    for family in families:
        missing = _lacking(findfont(FontProperties(family=[family])), missing)
    for family, path in _ordinary_faces() if missing else ():
        still_missing = _lacking(path, missing)
        if still_missing != missing:
            families.append(family)
            missing = still_missing
        if not missing:
            break
    return [_escaped(text, missing, limit) for text in texts], families


def _escaped(text: str, missing: set[str], limit: int) -> str:
    pieces = [c.encode("unicode_escape").decode() if c in missing else c for c in text]
    shortened = sum(map(columns, pieces)) > limit
    while sum(map(columns, pieces)) > limit - len(" ...") * shortened and len(pieces) > 1:
        del pieces[-2]
    return "".join([*pieces[:-1], *[" ..."] * shortened, *pieces[-1:]])


def _ordinary_faces() -> list[tuple[str, str]]:
    """Family and path of every font that matplotlib knows, upright and of ordinary weight."""
    from matplotlib.font_manager import fontManager

    faces = {
        (entry.name, entry.fname)
        for entry in fontManager.ttflist
        if (entry.style, entry.weight, entry.stretch) == ("normal", 400, "normal")
        and not entry.name.startswith(_NOT_A_FONT)
        and os.path.isfile(entry.fname)  # matplotlib's list may be older than the machine's fonts
    }
    return sorted(faces)


def _lacking(path: str, characters: set[str]) -> set[str]:
    """Those of some characters that a font does not have."""
    from matplotlib.font_manager import get_font

    font = get_font(path)
    return {c for c in characters if font.get_char_index(ord(c)) == 0}
