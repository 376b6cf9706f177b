"""The ready-made sets of tokens."""

# ruff: noqa: SIM300  # the names of the sets look like constants

import copy
import time
from collections.abc import Iterable

import kit
import pytest
from hypothesis import given, settings

from hfppl.errors import ArgumentError, VocabularyError
from hfppl.tokens import Vocabulary
from hfppl.tokens.masks import Masks
from hfppl.tokens.token_bytes import read_vocabulary


def masks_of(*entries: str | bytes | None, eos: Iterable[int] = (), **options: object) -> Masks:
    return Masks(kit.vocabulary(*entries, **options), eos)


def texts_in(masks: Masks, name: str) -> set[str]:
    return {masks.vocabulary.str_vocab[i] for i in getattr(masks, name)}


ONE_OF_EACH = {
    "STARTS_NEW_WORD": [" a", " A", " é", " 中", " ש", " 3", " word.", " \u0e2a", " 😀"],
    "CONTINUES_CURRENT_WORD": [
        *("a", "Word", "é", "e\u0301", "\u0301", "ß", "中文", "한국", "שלום", "नमस्ते", "สวัสดี"),
        *("'", "’", "n't", "n’t", "'s", "ʼ"),
    ],
    "MID_PUNCTUATION": [",", ":", ";", "-", '"', "—", "“", "”", "、", "，", "،", "؛"],
    "END_PUNCTUATION": [".", "!", "?", "…", "。", "！", "？", "؟", "।", "։"],
}
NO_WORD = [
    *(
        "",
        " ",
        "  ",
        " .",
        " -",
        " (",
        " $",
        " €",
        " +",
        " \u00a0",
        " \u200b",
        " \0",
        "\n",
        "\t",
        "\r\n",
        "\u3000",
    ),
    *(
        "a ",
        "a.",
        "a1",
        "1",
        "😀",
        "❤️",
        "\ufe0f",
        "\u200d",
        "\ufffd",
        "_",
        "a-b",
        "\ta",
        "\u00a0a",
        "  a",
        "..",
        ", ",
    ),
    *("(", "$", "`", "\0", ".\n"),
]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_set_holds_its_own_and_nothing_else(name: str):
    everything = [text for texts in ONE_OF_EACH.values() for text in texts] + NO_WORD
    assert texts_in(masks_of(*everything), name) == set(ONE_OF_EACH[name])


def test_punctuation_is_both_kinds():
    masks = masks_of(",", ".", "a", " ,")
    assert masks.PUNCTUATION == {0, 1} == masks.MID_PUNCTUATION | masks.END_PUNCTUATION


def test_white_space_of_any_kind_anywhere():
    masks = masks_of(
        "a", " a", "a\n", "\t", "\r\n", "\u00a0", "a\u3000b", "\u2028", "", "\u200b", b" \xe4", b"\xe4"
    )
    assert masks.CONTAINS_WHITESPACE == {1, 2, 3, 4, 5, 6, 7, 10}


def test_a_newline_in_a_longer_token_is_found():
    tokenizer = kit.metaspace(extra=[".\n"])
    vocabulary = read_vocabulary(tokenizer)
    masks = Masks(vocabulary)
    newlines = {i for i, entry in enumerate(vocabulary.byte_vocab) if b"\n" in entry}
    assert newlines == set(tokenizer.convert_tokens_to_ids(["<0x0A>", ".\n"]))
    assert newlines <= masks.CONTAINS_WHITESPACE
    assert masks.bytes({b"\n"}) == {tokenizer.convert_tokens_to_ids("<0x0A>")}


def test_half_characters_are_in_no_set_of_words_or_punctuation():
    emoji = "😀".encode()
    masks = masks_of(
        emoji[:2], emoji[2:], "中".encode()[:1], b" " + "中".encode()[:2], b"a\xe4", b"\xff", "\ufffd"
    )
    for name in ONE_OF_EACH:
        assert not getattr(masks, name)


def test_special_and_missing_tokens_are_no_text():
    masks = masks_of("a", "a", " a", " a", ".", ".", None, ",", ",", special_ids=[1, 3, 5, 7], n_logits=8)
    assert masks.CONTINUES_CURRENT_WORD == {0}
    assert masks.STARTS_NEW_WORD == {2}
    assert masks.END_PUNCTUATION == {4}
    assert masks.MID_PUNCTUATION == set()
    assert masks.CONTAINS_WHITESPACE == {2}
    assert masks.ALL_TOKENS == {0, 1, 2, 3, 4, 5, 7}
    assert masks.special == {1, 3, 5, 7}
    assert masks.special | ~masks.special == masks.ALL_TOKENS


def test_a_metaspace_vocabulary_has_words():
    tokenizer = kit.metaspace()
    masks = Masks(read_vocabulary(tokenizer))
    assert set(tokenizer.convert_tokens_to_ids(["▁Hello", "▁world"])) <= masks.STARTS_NEW_WORD
    assert tokenizer.convert_tokens_to_ids("world") in masks.CONTINUES_CURRENT_WORD
    assert not texts_in(masks, "STARTS_NEW_WORD") & {" ", "<s>", "</s>"}


# --- end of text


def test_eos_follows_the_language_model():
    ids = {1}
    masks = Masks(kit.vocabulary("a", "b", "c"), lambda: ids)
    assert masks.EOS == {1}
    assert masks.EOS is masks.EOS
    ids = {0, 2}
    assert masks.EOS == {0, 2}


def test_eos_may_be_fixed_or_empty():
    assert masks_of("a", "b", eos=[1]).EOS == {1}
    assert masks_of("a", "b").EOS == set()
    with pytest.raises(VocabularyError):
        _ = masks_of("a", eos=[5]).EOS


# --- length


def test_length_in_characters():
    masks = masks_of("", "a", "é", "中文", "😀", "e\u0301", " abc", "<eos>", None, special_ids=[7])
    assert masks.MAX_TOKEN_LENGTH == 4
    assert masks.token_length_mask(1, 1) == {1, 2, 4}
    assert masks.token_length_mask(min=2) == {3, 5, 6}
    assert masks.token_length_mask(max=1) == {0, 1, 2, 4, 7}
    assert masks.token_length_mask() == masks.ALL_TOKENS
    assert masks.token_length_mask(0, 0) == {0, 7}
    assert (
        masks.token_length_mask(5, None)
        == masks.token_length_mask(max=-1)
        == masks.token_length_mask(3, 2)
        == set()
    )


@settings(max_examples=40, deadline=None)
@given(text=kit.texts())
def test_lengths_add_up_to_the_length_of_the_text(text: str):
    vocabulary = read_vocabulary(kit.byte_level())
    masks = Masks(vocabulary)
    ids = kit.byte_level().encode(text)
    lengths = [next(n for n in range(13) if i in masks.token_length_mask(n, n)) for i in ids]
    assert sum(lengths) == len(text)


def test_a_length_mask_is_made_once_and_the_memory_is_bounded():
    masks = masks_of(*("a" * n for n in range(100)))
    assert masks.token_length_mask(1, 2) is masks.token_length_mask(1, 2)
    assert masks.token_length_mask(max=1000) is masks.token_length_mask(0, 99)
    for n in range(100):
        assert masks.token_length_mask(n, n) == {n}
    assert masks._length_mask.cache_info().currsize <= 64


def test_an_empty_token_alone_has_no_length():
    assert masks_of("").MAX_TOKEN_LENGTH == 0
    assert masks_of(b"\x80").MAX_TOKEN_LENGTH == 0


# --- by content


def test_every_token_with_these_bytes():
    masks = masks_of("x", " ", b" ", "y", b"\xe4", None, "")
    assert masks.bytes({b" "}) == {1, 2}
    assert masks.bytes([b" ", b"x", b"nowhere"]) == {0, 1, 2}
    assert masks.bytes({b"\xe4"}) == {4}
    assert masks.bytes({b""}) == {6}
    assert masks.bytes([]) == set()
    assert masks.text({" ", "y"}) == {1, 2, 3}


def test_the_text_of_a_special_token_does_not_mean_it_unless_asked():
    masks = masks_of("</s>", "</s>", special_ids=[1])
    assert masks.text({"</s>"}) == {0} == masks.bytes({b"</s>"})
    assert masks.text({"</s>"}, special=True) == {0, 1} == masks.bytes({b"</s>"}, special=True)


@pytest.mark.parametrize("strings", [b"ab", "ab", "", {"a"}, [97], b""])
def test_bytes_takes_a_set_of_bytes(strings: object):
    with pytest.raises(ArgumentError, match="bytes"):
        masks_of("a").bytes(strings)


@pytest.mark.parametrize("strings", ["ab", b"ab", {b"a"}, {"\ud800"}])
def test_text_takes_a_set_of_text(strings: object):
    with pytest.raises(ArgumentError):
        masks_of("a").text(strings)


# --- as an object


def test_sets_are_made_when_asked_for_and_kept():
    masks = masks_of("a", " b")
    assert "STARTS_NEW_WORD" not in vars(masks)
    assert masks.STARTS_NEW_WORD is masks.STARTS_NEW_WORD
    assert copy.deepcopy(masks) is masks


@pytest.mark.model
def test_the_default_model():
    from transformers import AutoTokenizer

    from hfppl.llms.default_model import default_model_path

    tokenizer = AutoTokenizer.from_pretrained(default_model_path())
    masks = Masks(read_vocabulary(tokenizer))
    assert len(masks.STARTS_NEW_WORD) > 15_000
    assert len(masks.CONTINUES_CURRENT_WORD) > 10_000
    assert masks.STARTS_NEW_WORD.isdisjoint(masks.CONTINUES_CURRENT_WORD)
    assert {".", "!", "?"} <= texts_in(masks, "END_PUNCTUATION")
    assert {",", ":", ";", "-", '"'} <= texts_in(masks, "MID_PUNCTUATION")
    assert tokenizer.encode(" don't") == [
        i
        for i in tokenizer.encode(" don't")
        if i in masks.STARTS_NEW_WORD or i in masks.CONTINUES_CURRENT_WORD
    ]


NAMES = [name for name in vars(Masks) if name.isupper()] + ["special"]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_largest_vocabulary_takes_less_than_two_seconds(name: str):
    read = read_vocabulary(kit.large_byte_level())
    masks = Masks(Vocabulary(read.byte_vocab))
    before = time.process_time()
    getattr(masks, name)
    assert time.process_time() - before < 2
