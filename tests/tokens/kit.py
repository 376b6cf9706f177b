"""Small tokenizers of every kind, built on the spot, and a stand-in for a language model."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hfppl.tokens import Vocabulary

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class FakeLM(NamedTuple):
    """What a token asks of its language model."""

    vocabulary: Vocabulary
    tokenizer: Any = None


def vocabulary(*entries: str | bytes | None, **options: Any) -> Vocabulary:
    return Vocabulary([entry.encode() if isinstance(entry, str) else entry for entry in entries], **options)


def byte_level(extra: Sequence[str | AddedToken] = ("   ",), decoder: Any = None) -> PreTrainedTokenizerFast:
    """TokB: the 256 byte symbols, no merges, no BOS and EOS; a special token and ordinary added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if decoder is not None:
        backend.decoder = decoder
    backend.add_special_tokens(["<|fim·中|>"])
    backend.add_tokens(list(extra))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def _chain(word: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The intermediate entries, and the merges, by which BPE makes `word` from its characters."""
    merges = [(word[:i], word[i]) for i in range(1, len(word))]
    return [left + right for left, right in merges], merges


def metaspace_entries(extra: Iterable[str] = ()) -> tuple[dict[str, int], list[tuple[str, str]]]:
    words = [_chain(word) for word in ("▁Hello", "▁world", "world", "oo")]
    pieces = ["<unk>", "<s>", "</s>", *BYTE_PIECES, "▁", *LETTERS, "\ufffd", *extra]
    pieces += [piece for entries, _ in words for piece in entries]
    merges = [merge for _, merges in words for merge in merges]
    return {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, merges


def metaspace(extra: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """TokM: SentencePiece style BPE with byte fallback; writes `▁` first and strips one space."""
    vocab, merges = metaspace_entries(extra)
    backend = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def unigram(decoder: Any = None) -> PreTrainedTokenizerFast:
    """Unigram with a metaspace pre-tokenizer and byte fallback."""
    scores = (
        {"<unk>": 0.0} | dict.fromkeys(BYTE_PIECES, -9.0) | {"▁": -3.0, "▁the": -2.0, "é": -4.0, "中": -4.0}
    )
    scores |= dict.fromkeys(LETTERS, -5.0)
    backend = Tokenizer(models.Unigram(list(scores.items()), unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoder or decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def word_piece() -> PreTrainedTokenizerFast:
    """WordPiece: `##` continues a word; every other entry begins one."""
    pieces = [
        "[UNK]",
        "[SEP]",
        "hello",
        "hell",
        "##o",
        "wor",
        "##ld",
        ",",
        ".",
        "don",
        "'",
        "'s",
        "cost",
        "$",
        "-",
    ]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["[SEP]"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


CHARACTERS = sorted(
    set(map(chr, range(256))) | set("éßñ中文字日本語שלוםمرحبا😀👍🏽\u0301\u200d\ufe0f\ufffd▁Ġ")
)


def characters() -> PreTrainedTokenizerFast:
    """One token for each of some characters."""
    backend = Tokenizer(
        models.WordLevel({c: i for i, c in enumerate([*CHARACTERS, "[UNK]"])}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


@functools.cache
def large_byte_level(size: int = 262_144) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer as large as the largest in use."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet]
    for first in alphabet:
        pieces += [first + second for second in alphabet]
    for stem in pieces[256:]:
        pieces += [stem + third for third in alphabet[:4]]
    backend = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces[:size])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


NASTY = [
    *(
        "\0",
        "\r\n",
        "\n",
        "\t",
        " ",
        "  ",
        "   ",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\ufeff",
        "\ufffd",
        "\x7f",
        "\x85",
    ),
    *("é", "e\u0301", "ñ", "ß", "İ", "Ġ", "Ċ", "ĉ", "→", "'", "’", "…"),
    *("😀", "👍🏽", "👩‍👩‍👧", "🇫🇷", "❤️", "中文", "日本語", "한국", "שלום", "مرحبا", "नमस्ते", "สวัสดี"),
    *("Hello", " world", "the", "oo", "x != y", "<0x0A>", "</", "3.14", "\U0010ffff", "\u2028"),
]


def texts() -> st.SearchStrategy[str]:
    """Unicode texts, lone surrogates left out: any characters, and pieces known for trouble, mixed."""
    anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    return st.lists(st.sampled_from(NASTY) | anything, max_size=10).map("".join)
