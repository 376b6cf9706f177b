"""From a token's entry in the vocabulary to its bytes, as the tokenizer's pipeline declares it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import VocabularyError

Step = Callable[[str], str | bytes]
"""What one step of the decoder makes of an entry; bytes are final."""


class Pipeline(NamedTuple):
    """How to read vocabulary entries.

    Attributes:
        to_bytes: the exact bytes of an entry, wherever it stands in a text but at its very start.
        strips_first_space: whether one space at the very start of a text is none of its own.
    """

    to_bytes: Callable[[str], bytes]
    strips_first_space: bool


def read_pipeline(decoder: Any, pre_tokenizer: Any, normalizer: Any, model: dict[str, Any]) -> Pipeline:
    """The pipeline of a tokenizer of the `tokenizers` library.

    The decoder decides: what joins tokens to a text knows best what each contributes. Without a
    decoder the encoding side decides, where it leaves no doubt.

    Args:
        decoder: with `pre_tokenizer` and `normalizer`, components of the tokenizer, or None.
        model: its "type", and of its settings those that matter here.

    Raises:
        VocabularyError: if a component does what cannot be said of each token by itself.
    """
    if decoder is None:
        decoding = _steps_without_decoder(_steps(pre_tokenizer), _steps(normalizer), model)
    else:
        decoding = _steps(decoder)
    if model.get("byte_fallback") and not any(step["type"] == "ByteFallback" for step in decoding):
        decoding = [{"type": "ByteFallback"}, *decoding]
    return _compose(decoding)


def byte_level_reader(byte_of: Mapping[str, int]) -> Callable[[str], bytes]:
    """A step that reads the byte-level alphabet, one character for each byte.

    An entry with any other character is not written in this alphabet and means itself.
    """
    latin = {character: chr(byte) for character, byte in byte_of.items()}
    # Latin-1 characters outside the alphabet must not pass for the byte of the same number.
    table = str.maketrans({chr(i): "\U0010ffff" for i in range(256)} | latin)

    def read(piece: str) -> bytes:
        try:
            return piece.translate(table).encode("latin-1")
        except UnicodeEncodeError:
            return piece.encode()

    return read


def byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself if it prints, else the next free one from U+0100."""
    alphabet: dict[str, int] = {}
    for byte in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)):
        alphabet[chr(byte)] = byte
    others = sorted(set(range(256)) - set(alphabet.values()))
    return alphabet | {chr(256 + n): byte for n, byte in enumerate(others)}


def read_byte_piece(piece: str) -> str | bytes:
    """`<0x0A>` is the byte 10; every other entry means what it says."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return bytes.fromhex(piece[3:5])
        except ValueError:
            return piece
    return piece


def _steps(component: Any) -> list[dict[str, Any]]:
    """A component as a flat list of its steps."""
    if component is None:
        return []
    try:
        state = json.loads(component.__getstate__())
    except Exception as error:  # whatever the extension module raises for a component written in Python
        raise VocabularyError(
            f"the tokenizer's {type(component).__name__} does not say what it does ({error})"
        ) from error
    return _flatten(state)


def _flatten(state: dict[str, Any]) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    parts = next(value for value in state.values() if isinstance(value, list))
    return [step for part in parts for step in _flatten(part)]


def _compose(decoding: list[dict[str, Any]]) -> Pipeline:
    readers: list[Step] = []
    strips_first_space = False
    fused = False  # from here on a step sees the whole text, not a token
    for step in decoding:
        kind = step["type"]
        if kind == "Fuse":
            fused = True
        elif kind == "Strip" and fused:
            strips_first_space |= _strips_one_space(step)
        elif kind == "ByteLevel" and not fused:
            readers.append(byte_level_reader(byte_level_alphabet()))
        elif kind == "ByteFallback" and not fused:
            readers.append(read_byte_piece)
        elif kind == "Replace" and "String" in step["pattern"]:
            old, new = step["pattern"]["String"], step["content"]
            if fused and len(old) != 1:
                raise VocabularyError(f"the tokenizer's decoder replaces {old!r} across tokens")
            readers.append(_replacer(old, new))
        elif kind == "Metaspace" and not fused:
            readers.append(_replacer(step["replacement"], " "))
            strips_first_space |= step["prepend_scheme"] != "never"
        elif kind == "WordPiece" and not fused:
            readers.append(_word_piece_reader(step["prefix"], step["cleanup"]))
            strips_first_space = True
        elif kind == "BPEDecoder" and not fused:
            readers.append(_replacer(step["suffix"], " "))
        else:
            raise VocabularyError(
                f"the tokenizer's decoder has the step {json.dumps(step, ensure_ascii=False)}, "
                "which does not say what each token contributes to a text"
            )

    def to_bytes(piece: str) -> bytes:
        for read in readers:
            result = read(piece)
            if isinstance(result, bytes):
                return result
            piece = result
        return piece.encode()

    return Pipeline(to_bytes, strips_first_space)


def _strips_one_space(step: dict[str, Any]) -> bool:
    ends = (step["content"], step["start"], step["stop"])
    if ends[1:] == (0, 0):
        return False
    if ends != (" ", 1, 0):
        raise VocabularyError(
            f"the tokenizer's decoder strips up to {ends[1]} and {ends[2]} times {ends[0]!r} from the ends "
            "of a text; only one space at its start is understood"
        )
    return True


def _replacer(old: str, new: str) -> Step:
    return lambda piece: piece.replace(old, new)


# What a WordPiece decoder with clean-up does to the space that it has put before a token.
_TIDIED = (" .", " ?", " !", " ,", " n't", " 'm", " 's", " 've", " 're")


def _word_piece_reader(prefix: str | None, cleanup: bool) -> Step:
    def read(piece: str) -> str:
        if prefix is not None and piece.startswith(prefix):
            return piece[len(prefix) :]
        spaced = " " + piece
        return piece if cleanup and spaced.startswith(_TIDIED) else spaced

    return read


# Pre-tokenizers that cut a text and drop nothing of it.
_CUTTING = {"Split", "Punctuation", "Digits", "UnicodeScripts", "FixedLength"}
# Pre-tokenizers that drop the white space between words.
_WORDS = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"}


def _steps_without_decoder(
    cutting: list[dict[str, Any]], normalizing: list[dict[str, Any]], model: dict[str, Any]
) -> list[dict[str, Any]]:
    """What the decoder would be, from what the encoding side does."""
    kinds = {step["type"] for step in (*cutting, *normalizing)}
    if "ByteLevel" in kinds:
        return [{"type": "ByteLevel"}]
    metaspaces = [step for step in cutting if step["type"] == "Metaspace"]
    if len(metaspaces) == 1:
        return metaspaces
    rewrites_spaces = any(
        step["type"] == "Prepend" or (step["type"] == "Replace" and step["pattern"].get("String") == " ")
        for step in normalizing
    )
    marks_pieces = (
        model["type"] == "WordPiece"
        or model.get("continuing_subword_prefix")
        or model.get("end_of_word_suffix")
    )
    if not rewrites_spaces and not marks_pieces:
        if all(step["type"] in _CUTTING and step.get("behavior") != "Removed" for step in cutting):
            return []
        if model["type"] == "WordLevel" and {step["type"] for step in cutting} <= _WORDS | _CUTTING:
            # Each token is a word, and `decode` without a decoder joins them by one space.
            return [{"type": "WordPiece", "prefix": None, "cleanup": False}]
    raise VocabularyError(
        f"the tokenizer ({model['type']}) has no decoder, and its other components do not say whether "
        "a space comes before a token: set tokenizer.backend_tokenizer.decoder"
    )
