"""Bytes of every token, for every kind of tokenizer."""

import time
from types import SimpleNamespace
from typing import Any

import kit
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hfppl.errors import VocabularyError
from hfppl.tokens.token_bytes import read_vocabulary

# --- byte-level


def test_byte_level_entries_are_the_bytes_their_symbols_stand_for():
    tokenizer = kit.byte_level()
    vocabulary = read_vocabulary(tokenizer)
    assert sorted(vocabulary.byte_vocab[:256]) == [bytes([i]) for i in range(256)]
    assert vocabulary.byte_vocab[tokenizer.convert_tokens_to_ids("Ġ")] == b" "
    assert vocabulary.byte_vocab[tokenizer.convert_tokens_to_ids("Ċ")] == b"\n"
    assert not vocabulary.strips_first_space


@pytest.mark.parametrize("text", ["   ", "→", "Ġx", "éé", "a\u00a0b"])
def test_an_added_token_is_its_own_text(text: str):
    vocabulary = read_vocabulary(kit.byte_level(extra=(text,)))
    assert vocabulary.byte_vocab[257] == text.encode()
    assert not vocabulary.special[257]


def test_a_special_token_is_its_own_text_and_flagged():
    vocabulary = read_vocabulary(kit.byte_level())
    assert vocabulary.byte_vocab[256] == "<|fim·中|>".encode()
    assert list(vocabulary.special.nonzero()[0]) == [256]


def test_byte_level_without_a_decoder_is_known_from_the_pre_tokenizer():
    tokenizer = kit.byte_level()
    tokenizer.backend_tokenizer.decoder = None
    assert read_vocabulary(tokenizer) == read_vocabulary(kit.byte_level())


def test_an_entry_outside_the_byte_alphabet_is_its_own_text():
    backend = Tokenizer(models.BPE(vocab={"a b": 0, "Ġ": 1, "\xad": 2}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert read_vocabulary(backend).byte_vocab == [b"a b", b" ", "\xad".encode()]


def test_a_byte_level_tokenizer_written_in_python():
    fast = kit.byte_level()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    slow = SimpleNamespace(
        byte_decoder={symbol: read_vocabulary(fast).byte_vocab[i][0] for i, symbol in enumerate(alphabet)},
        get_vocab=fast.get_vocab,
        added_tokens_decoder=fast.added_tokens_decoder,
    )
    assert read_vocabulary(slow) == read_vocabulary(fast)
    assert read_vocabulary(slow).special[256]


# --- metaspace and byte fallback


def test_metaspace_entries_have_spaces_and_bytes():
    tokenizer = kit.metaspace(extra=["ĉ"])
    vocabulary = read_vocabulary(tokenizer)
    expected = {"▁": b" ", "▁Hello": b" Hello", "▁world": b" world", "world": b"world", "<0x20>": b" "}
    expected |= {"<0x0A>": b"\n", "<0xFF>": b"\xff", "ĉ": b"\xc4\x89", "\ufffd": b"\xef\xbf\xbd"}
    assert {
        entry: vocabulary.byte_vocab[tokenizer.convert_tokens_to_ids(entry)] for entry in expected
    } == expected
    assert {bytes([i]) for i in range(256)} <= set(vocabulary.byte_vocab)
    assert vocabulary.strips_first_space
    assert vocabulary.str_vocab[tokenizer.convert_tokens_to_ids("▁world")] == " world"


def test_start_end_and_unknown_are_special():
    vocabulary = read_vocabulary(kit.metaspace())
    assert list(vocabulary.special.nonzero()[0]) == [0, 1, 2]
    assert vocabulary.byte_vocab[:3] == [b"<unk>", b"<s>", b"</s>"]


def test_the_first_space_is_stripped_once_and_after_special_tokens_too():
    tokenizer = kit.metaspace()
    vocabulary = read_vocabulary(tokenizer)
    hello, world = tokenizer.convert_tokens_to_ids(["▁Hello", "▁world"])
    assert vocabulary.join([hello, world]) == b"Hello world"
    assert vocabulary.join([1, hello, world]) == b"<s>Hello world"
    assert vocabulary.join(tokenizer.encode("  Hello")) == b"  Hello"


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="first"), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), False),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " ")]), False),
    ],
)
def test_the_decoder_says_whether_the_first_space_is_stripped(decoder: Any, strips: bool):
    vocabulary = read_vocabulary(kit.unigram(decoder))
    assert vocabulary.strips_first_space == strips
    # The model falls back on bytes, whether its decoder knows it or not.
    assert vocabulary.byte_vocab[1:260] == [*(bytes([i]) for i in range(256)), b" ", b" the", "é".encode()]
    assert vocabulary.special[0]


def test_without_a_decoder_the_metaspace_pre_tokenizer_decides():
    tokenizer = kit.unigram()
    tokenizer.backend_tokenizer.decoder = None
    assert read_vocabulary(tokenizer) == read_vocabulary(kit.unigram())
    assert read_vocabulary(tokenizer).strips_first_space


def test_an_added_token_that_is_an_ordinary_entry_too_is_read_as_that_entry():
    tokenizer = kit.metaspace(extra=["▁▁"])
    token_id = tokenizer.convert_tokens_to_ids("▁▁")
    tokenizer.add_tokens([AddedToken("▁▁", normalized=False), AddedToken("▁new▁", normalized=False)])
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.byte_vocab[token_id] == b"  "
    assert vocabulary.byte_vocab[-1] == "▁new▁".encode()


def test_two_ids_may_have_the_same_bytes():
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("a", -2.0), ("▁", -1.0)], unk_id=0))
    backend.decoder = decoders.Metaspace()
    assert read_vocabulary(backend).byte_vocab == [b"<unk>", b"a", b"a", b" "]
    fallback = read_vocabulary(kit.metaspace())
    assert fallback.byte_vocab.count(b" ") == 2


# --- other kinds


def test_word_piece_tokens_join_to_readable_text():
    tokenizer = kit.word_piece()
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.byte_vocab[:8] == [
        *(b"[UNK]", b"[SEP]", b" hello", b" hell", b"o", b" wor", b"ld", b","),
    ]
    assert vocabulary.join(tokenizer.encode("hello, hello world.")) == b"hello, hello world."
    assert vocabulary.join(tokenizer.encode("cost - $")) == b"cost - $"
    assert list(vocabulary.special.nonzero()[0]) == [0, 1]


def test_word_piece_without_clean_up_keeps_every_space():
    tokenizer = kit.word_piece()
    tokenizer.backend_tokenizer.decoder = decoders.WordPiece(cleanup=False)
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.join(tokenizer.encode("hello, world.")) == b"hello , world ."


def test_characters_are_themselves():
    tokenizer = kit.characters()
    assert read_vocabulary(tokenizer).byte_vocab == [*(c.encode() for c in kit.CHARACTERS), b"[UNK]"]


def _words(pre_tokenizer: Any, decoder: Any = None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_words_without_a_decoder_have_a_space_between():
    tokenizer = _words(pre_tokenizers.Whitespace())
    vocabulary = read_vocabulary(tokenizer)
    ids = tokenizer.encode("hello  world")
    assert vocabulary.join(ids) == b"hello world" == tokenizer.decode(ids).encode()


def test_an_end_of_word_suffix_is_a_space():
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b</w>": 1}, merges=[], end_of_word_suffix="</w>"))
    backend.decoder = decoders.BPEDecoder()
    assert read_vocabulary(backend).byte_vocab == [b"a", b"b "]


def _bpe(decoder: Any = None, normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    backend = Tokenizer(models.BPE(vocab={"a": 0, "▁a": 1}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    return backend


class _Shout:
    def decode_chain(self, tokens: list[str]) -> list[str]:
        return [token.upper() for token in tokens]


@pytest.mark.parametrize(
    ("tokenizer", "named"),
    [
        (_bpe(decoders.CTC()), "CTC"),
        (_bpe(decoders.Replace(Regex("a+"), "b")), "Regex"),
        (_bpe(decoders.Strip("a", 1, 0)), "Strip"),
        (_bpe(decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 2, 0)])), "strips"),
        (_bpe(decoders.Sequence([decoders.Fuse(), decoders.Replace("ab", " ")])), "across tokens"),
        (_bpe(decoders.Sequence([decoders.Fuse(), decoders.Metaspace()])), "Metaspace"),
        (_bpe(decoders.Decoder.custom(_Shout())), "does not say what it does"),
        (_bpe(None, normalizers.Replace(" ", "▁")), "no decoder"),
        (_bpe(None, None, pre_tokenizers.Whitespace()), "no decoder"),
        (_words(pre_tokenizers.CharDelimiterSplit("x")), "no decoder"),
        (Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), "no decoder"),
        (SimpleNamespace(get_vocab=lambda: {"a": 0}), "SimpleNamespace"),
        (SimpleNamespace(byte_decoder={"a": 97}), "SimpleNamespace"),
        (Tokenizer(models.BPE({}, [])), "no tokens"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tokenizer: Any, named: str):
    with pytest.raises(VocabularyError, match=named):
        read_vocabulary(tokenizer)


# --- which ids exist


def test_holes_have_no_bytes_and_do_not_exist():
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 3}, merges=[]))
    backend.add_tokens(["c"])
    # The library numbers added tokens from the count of entries, so this one falls into the hole.
    assert backend.token_to_id("c") == 2
    vocabulary = read_vocabulary(backend)
    assert vocabulary.byte_vocab == [b"a", b"", b"c", b"b"]
    assert list(vocabulary.exists) == [True, False, True, True]


@pytest.mark.parametrize(("n_logits", "n_exist"), [(None, 258), (100, 100), (258, 258), (300, 258)])
def test_ids_beyond_the_logits_do_not_exist(n_logits: int | None, n_exist: int):
    vocabulary = read_vocabulary(kit.byte_level(), n_logits)
    assert vocabulary.size == 258
    assert int(vocabulary.exists.sum()) == n_exist
    assert vocabulary.byte_vocab[257] == b"   "


@pytest.mark.long
def test_the_largest_vocabulary_is_read_in_two_seconds():
    tokenizer = kit.large_byte_level()
    before = time.process_time()
    vocabulary = read_vocabulary(tokenizer)
    assert time.process_time() - before < 2
    assert vocabulary.size == 262_144
