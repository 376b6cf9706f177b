"""Tokens and sequences of tokens, as values."""

import copy
import operator
from types import SimpleNamespace
from typing import Any

import kit
import numpy as np
import pytest

from hfppl.errors import ArgumentError, VocabularyError
from hfppl.tokens import Token, TokenSequence, decode
from hfppl.tokens.token_bytes import read_vocabulary

TOKENIZER = kit.metaspace()
LM = kit.FakeLM(read_vocabulary(TOKENIZER), TOKENIZER)
TWIN = kit.FakeLM(read_vocabulary(kit.metaspace()), TOKENIZER)
OTHER_TOKENIZER = kit.byte_level(extra=[f"<{i}>" for i in range(100)])
OTHER = kit.FakeLM(read_vocabulary(OTHER_TOKENIZER), OTHER_TOKENIZER)
HELLO, WORLD, A = TOKENIZER.convert_tokens_to_ids(["▁Hello", "▁world", "a"])


# --- a token


def test_a_token_has_an_id_bytes_and_a_text():
    token = Token(LM, WORLD)
    assert (token.token_id, token.byte_string, str(token), token.token_str) == (
        WORLD,
        b" world",
        " world",
        " world",
    )
    assert int(token) == operator.index(token) == WORLD
    assert "abc"[Token(LM, 2)] == "c"
    assert repr(token) == f"<' world'|{WORLD}>"


def test_the_historical_third_argument_changes_nothing():
    assert str(Token(LM, WORLD, "something else")) == " world"


def test_half_a_character_is_exact_in_bytes():
    halves = kit.FakeLM(kit.vocabulary(b"\xf0\x9f", b"\x98\x80"))
    tokens = [Token(halves, 0), Token(halves, 1)]
    assert [str(token) for token in tokens] == ["\ufffd", "\ufffd\ufffd"]
    assert b"".join(token.byte_string for token in tokens).decode() == "😀"


def test_a_token_equals_its_id_and_its_like_and_nothing_else():
    token = Token(LM, A)
    assert token == Token(LM, A) == Token(TWIN, A)
    assert token == A == token
    assert token == np.int64(A)
    assert token != Token(LM, HELLO)
    assert token != A + 1
    assert token != Token(OTHER, A)
    for other in ("a", b"a", float(A), None, [A]):
        assert token != other
        assert other != token


def test_a_token_is_hashed_by_its_id():
    token = Token(LM, A)
    assert hash(token) == hash(A)
    assert token in {A}
    assert A in {token}
    assert {token: "yes"}[A] == "yes"
    assert len({token, Token(LM, A), Token(TWIN, A), Token(OTHER, A), Token(LM, HELLO)}) == 3


@pytest.mark.parametrize("token_id", [-1, LM.vocabulary.size, 10**9])
def test_an_id_that_there_is_not_is_refused(token_id: int):
    with pytest.raises(VocabularyError, match="no token"):
        Token(LM, token_id)


@pytest.mark.parametrize("token_id", ["a", 1.0, None])
def test_what_is_no_id_is_refused(token_id: Any):
    with pytest.raises(VocabularyError, match="int for its id"):
        Token(LM, token_id)


def test_text_and_token_make_text():
    token = Token(LM, WORLD)
    for text, expected in (("Hi" + token, "Hi world"), (token + "!", " world!"), ("" + token, " world")):
        assert type(text) is str
        assert text == expected
    text = "Hi"
    text += token
    assert text == "Hi world"
    assert type(text) is str


def test_tokens_add_up_to_a_sequence():
    hello, world = Token(LM, HELLO), Token(LM, WORLD)
    for sequence in (hello + world, hello + WORLD, HELLO + world, hello + [WORLD], [HELLO] + world):  # noqa: RUF005
        assert isinstance(sequence, TokenSequence)
        assert sequence.seq == [HELLO, WORLD]
    assert (hello.token_id, world.token_id) == (HELLO, WORLD)


def test_a_token_copied_is_itself():
    token = Token(LM, A)
    assert copy.deepcopy(token) is token
    assert copy.copy(token) == token


# --- a sequence


def test_a_sequence_knows_its_text():
    sequence = TokenSequence(LM, [HELLO, WORLD])
    assert str(sequence) == "Hello world"
    assert bytes(sequence) == b"Hello world"
    assert repr(sequence) == "<TokenSequence 'Hello world'>"
    assert len(sequence) == 2
    assert list(sequence) == [HELLO, WORLD]
    assert sequence[0] == HELLO
    assert sequence[1:] == [WORLD]


def test_what_a_sequence_is_made_of():
    assert TokenSequence(LM).seq == [TOKENIZER.bos_token_id]
    assert TokenSequence(LM, []).seq == []
    assert TokenSequence(LM, "Hello world").seq == [HELLO, WORLD]
    assert TokenSequence(LM, (Token(LM, HELLO), np.int64(WORLD))).seq == [HELLO, WORLD]
    assert TokenSequence(LM, TokenSequence(TWIN, [A])).seq == [A]
    with pytest.raises(ArgumentError, match="start token"):
        TokenSequence(OTHER)


def test_plus_makes_a_new_sequence():
    left, right = TokenSequence(LM, [HELLO]), TokenSequence(LM, [WORLD])
    for other in (right, [WORLD], (WORLD,), Token(LM, WORLD), WORLD, "world"):
        assert (left + other).seq == [HELLO, WORLD]
    for other in (left, [HELLO], Token(LM, HELLO), HELLO, "Hello"):
        assert (other + right).seq == [HELLO, WORLD]
    assert (left.seq, right.seq) == ([HELLO], [WORLD])


def test_plus_equals_extends_in_place():
    sequence = alias = TokenSequence(LM, [HELLO])
    source = [WORLD]
    sequence += source
    sequence += Token(LM, A)
    assert sequence is alias
    assert alias.seq == [HELLO, WORLD, A]
    assert source == [WORLD]
    alias += alias
    assert alias.seq == [HELLO, WORLD, A] * 2


def test_a_sequence_does_not_share_the_list_it_was_made_of():
    ids = [HELLO]
    sequence = TokenSequence(LM, ids)
    ids.append(WORLD)
    assert sequence.seq == [HELLO]
    twin = copy.deepcopy(sequence)
    twin += WORLD
    assert sequence.seq == [HELLO]
    assert twin.lm is LM


def test_sequences_are_equal_by_ids_within_one_vocabulary():
    assert TokenSequence(LM, [A]) == TokenSequence(TWIN, [A])
    assert TokenSequence(LM, [A]) != TokenSequence(LM, [A, A])
    assert TokenSequence(LM, [A]) != TokenSequence(OTHER, [A])
    assert TokenSequence(LM, [A]) != [A]
    assert TokenSequence(LM, [A]) != "a"
    with pytest.raises(TypeError, match="unhashable"):
        hash(TokenSequence(LM, [A]))


@pytest.mark.parametrize("other", [Token(OTHER, 0), TokenSequence(OTHER, [0]), [Token(OTHER, 0)]])
def test_tokens_of_another_vocabulary_are_refused(other: Any):
    sequence = TokenSequence(LM, [HELLO])
    with pytest.raises(VocabularyError, match="another vocabulary"):
        _ = sequence + other
    with pytest.raises(VocabularyError, match="another vocabulary"):
        sequence += other
    assert sequence.seq == [HELLO]
    with pytest.raises(VocabularyError, match="another vocabulary"):
        _ = Token(LM, HELLO) + other


@pytest.mark.parametrize("other", [[-1], -1, LM.vocabulary.size, ["a"], [1.5], 1.5, None, [None]])
def test_what_is_no_token_is_refused(other: Any):
    sequence = TokenSequence(LM, [HELLO])
    with pytest.raises(VocabularyError):
        sequence += other
    assert sequence.seq == [HELLO]


def test_an_unfinished_character_shows_and_is_exact_in_bytes():
    halves = SimpleNamespace(vocabulary=kit.vocabulary(b"a\xf0\x9f", b"\x98\x80"), tokenizer=None)
    sequence = TokenSequence(halves, [0])
    assert (str(sequence), bytes(sequence)) == ("a\ufffd", b"a\xf0\x9f")
    sequence += 1
    assert str(sequence) == "a😀"


def test_decode_never_raises():
    assert decode(b"\xff\xfea") == "\ufffd\ufffda"
