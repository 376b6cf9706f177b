"""Masks against a check of every token, byte by byte, on small tokenizers of every kind and a real one."""

import copy
import re
from typing import Any

import numpy as np
import pytest
from tokens.kit import byte_level, metaspace, unigram

from hfppl import CachedCausalLM, LMContext
from hfppl.constraints import And, Choice, Constraint, Lark, Not, Predicate, Regex, State, TokenLimit
from hfppl.errors import ArgumentError, ConstraintError
from hfppl.tokens import Vocabulary
from hfppl.tokens.token_bytes import read_vocabulary

RULES: dict[str, Constraint] = {
    "forced": Regex("Hello world"),
    "forced, then free": Regex("Hello [a-z]*"),
    "choice": Choice(["Hello", "Hello world", "hello", " Hello", "中é"]),
    "characters of several bytes": Regex("[à-ï中-亿😀-🙏]{1,3}"),
    "recursion": Lark('start: "(" start ")" | "oo" | /é+/'),
    "blank first": Regex(" ?[a-z ]*"),
}


class FakeLM:
    """The vocabulary of a tokenizer, as much of a language model as a constraint needs."""

    def __init__(self, vocabulary: Vocabulary, eos_token_ids: set[int]) -> None:
        self.vocabulary = vocabulary
        self.eos_token_ids = frozenset(eos_token_ids)


def small(name: str) -> FakeLM:
    tokenizer = {"byte level": byte_level, "metaspace": metaspace, "unigram": unigram}[name]()
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    return FakeLM(vocabulary, {int(np.flatnonzero(vocabulary.special)[0])})


def by_bytes(state: State, lm: Any, ids: Any) -> set[int]:
    """The ids, of those given, whose bytes go on with the text: fed one byte at a time."""
    found = set()
    for i in ids:
        entry = lm.vocabulary.byte_vocab[i]
        if i in lm.eos_token_ids or lm.vocabulary.special[i] or not lm.vocabulary.exists[i] or not entry:
            continue
        trial = state.copy()
        if all(trial.advance_bytes(bytes([byte])) for byte in entry):
            found.add(i)
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tokenizer", ["byte level", "metaspace", "unigram"])
def test_small_vocabularies(tokenizer: str, rule: str) -> None:
    lm = small(tokenizer)
    rng = np.random.default_rng(0)
    for _ in range(3):
        state = RULES[rule].start(lm)
        for _ in range(8):
            mask = set(state.text_mask())
            assert mask == by_bytes(state, lm, range(lm.vocabulary.size))
            assert (set(state.mask()) - mask == set(lm.eos_token_ids)) == state.can_end
            if not mask:
                break
            assert state.advance(int(rng.choice(sorted(mask))))


@pytest.fixture(scope="module")
def real() -> CachedCausalLM:
    return CachedCausalLM.from_pretrained(backend="mock")


@pytest.mark.model
@pytest.mark.parametrize("rule", RULES)
def test_a_real_vocabulary(real: CachedCausalLM, rule: str) -> None:
    rng = np.random.default_rng(1)
    state = RULES[rule].start(real)
    for _ in range(3):
        mask = state.text_mask()
        # All that is allowed, and a sample of what is not.
        ids = {*mask.ids[:1000].tolist(), *rng.integers(0, real.vocab_size, 1000).tolist()}
        assert {i for i in ids if i in mask} == by_bytes(state, real, ids)
        if not mask:
            break
        assert state.advance(int(rng.choice(mask.ids)))


@pytest.mark.model
def test_every_split_of_a_forced_text_is_open(real: CachedCausalLM) -> None:
    state = Choice(["Hello world"]).start(real)
    starts = {real.str_vocab[i] for i in state.mask()}
    assert {"H", "He", "Hel", "Hello"} <= starts


def test_end_tokens_come_only_where_a_text_may_end() -> None:
    lm = small("byte level")
    (end,) = lm.eos_token_ids
    state = Regex("ab?").start(lm)
    assert end not in state.mask()
    assert state.advance(lm.vocabulary.byte_vocab.index(b"a"))
    assert end in state.mask()
    assert state.can_end
    assert state.advance(end)
    assert not state.can_end
    assert not state.mask()
    assert not state.advance(end)
    assert not state.advance(lm.vocabulary.byte_vocab.index(b"b"))


def test_a_dead_end_is_an_empty_mask() -> None:
    lm = FakeLM(Vocabulary([b"a", b"<eos>"], special_ids=[1]), {1})
    state = Regex("ab").start(lm)
    assert state.advance(0)
    assert not state.mask()
    assert not state.advance(0)
    assert not state.mask()


def test_a_token_against_the_rule_kills_the_state() -> None:
    lm = small("byte level")
    state = Regex("ab*").start(lm)
    assert not state.advance(lm.vocabulary.byte_vocab.index(b"z"))
    assert not state.can_end
    assert not state.mask()


def test_copies_go_their_own_ways() -> None:
    lm = small("byte level")
    a, b = (lm.vocabulary.byte_vocab.index(entry) for entry in (b"a", b"b"))
    for rule in (
        Regex("a(b|c)*"),
        Predicate(lambda t: t != "ac"),
        Regex("a.*") & ~Choice(["ab"]),
        TokenLimit(2),
    ):
        state = rule.start(lm)
        state.advance(a)
        before = state.mask()
        for twin in (state.copy(), copy.deepcopy(state), copy.copy(state)):
            twin.advance(b)
            assert state.mask() == before
        again = rule.start(lm)
        again.advance(a)
        assert again.mask() == before


def test_special_tokens_match_only_by_name() -> None:
    vocabulary = Vocabulary([*(bytes([i]) for i in range(256)), b"<think>", b"</s>"], special_ids=[256, 257])
    lm = FakeLM(vocabulary, {257})
    assert 256 not in Regex(r"(?s:.)*").start(lm).mask()
    assert 256 not in Regex("<think>a").start(lm).mask()
    state = Regex("</s>").start(lm)
    for byte in b"</s>":
        assert 257 not in state.mask()
        assert state.advance(byte)
    assert state.mask() == {257}
    named = Lark('start: <think> "a"').start(lm)
    assert named.mask() == {256}
    assert named.advance(256)
    assert named.mask() == {ord("a")}
    with pytest.raises(ConstraintError, match="thinking"):
        Lark('start: <thinking> "a"').start(lm)


def test_a_token_that_ends_texts_is_no_text() -> None:
    lm = FakeLM(Vocabulary([b"a", b"\n", b"b"]), {1})
    state = Regex("(?s:.)*").start(lm)
    assert state.text_mask() == {0, 2}
    assert state.mask() == {0, 1, 2}
    state = Regex("(?s:.)+").start(lm)
    assert state.mask() == {0, 2}


def test_empty_tokens_and_bytes_of_no_text() -> None:
    lm = FakeLM(Vocabulary([b"a", b"", b"\xff", None, b"<eos>"], special_ids=[4]), {4})
    state = Regex("a").start(lm)
    assert state.mask() == {0, 1}
    assert state.advance(1)
    assert state.advance(0)
    assert state.mask() == {1, 4}


# --- the first space of a SentencePiece text


@pytest.mark.parametrize(
    "rule",
    [Regex("Hello( world)?"), Predicate("Hello world".startswith, "Hello".__eq__)],
)
def test_a_space_that_the_tokenizer_adds_is_not_in_the_text(rule: Constraint) -> None:
    tokenizer = metaspace()
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    lm: Any = CachedCausalLM.from_function(
        [entry or b"\x00" for entry in vocabulary.byte_vocab], lambda ids: np.zeros(vocabulary.size)
    )
    lm.vocabulary = vocabulary
    lm.masks = type(lm.masks)(vocabulary)
    lm.eos_token_ids = [2]
    context = LMContext(lm, [1])
    state = rule.start(context)
    texts = {piece for i in state.mask() if (piece := vocabulary.byte_vocab[i]).isascii()}
    # A space of the tokenizer's own may come first or not; a second one would be in the text.
    assert texts == {
        p for p in vocabulary.byte_vocab if p and b"Hello world".startswith(p.removeprefix(b" "))
    }
    hello = vocabulary.byte_vocab.index(b" Hello")
    assert state.advance(hello)
    assert state.can_end


# --- combinations


def test_combinations_are_sets_of_texts() -> None:
    lm = small("byte level")
    no_b = ~Regex(".*b.*")
    checked = Predicate(lambda text: len(text) <= 3)
    for rule, inside in (
        (Regex("[ab]*") & no_b, lambda t: re.fullmatch("a*", t)),
        (And(Regex("[ab]*"), checked, no_b), lambda t: re.fullmatch("a{0,3}", t)),
        (~(Regex("[ab]*") & checked), lambda t: not re.fullmatch("[ab]{0,3}", t)),
        (~checked, lambda t: len(t) > 3),
        (~~Choice(["ab"]), lambda t: t == "ab"),
    ):
        for text in ("", "a", "b", "ab", "aaa", "aaaa", "abab", "cc", "é", "éééé"):
            state = rule.start(lm)
            assert (state.advance_bytes(text.encode()) and state.can_end) == bool(inside(text)), (rule, text)


def test_a_checker_is_asked_about_what_a_grammar_lets_through_only() -> None:
    lm = small("byte level")
    asked: list[str] = []

    def checker(text: str) -> bool:
        asked.append(text)
        return text != "b"

    for rule in (Predicate(checker) & Regex("[ab]+"), Regex("[ab]+") & Predicate(checker)):
        asked.clear()
        state = rule.start(lm)
        assert {lm.vocabulary.byte_vocab[i] for i in state.text_mask()} == {b"a"}
        assert set(asked) <= {"a", "b"}


def test_a_checker_sees_whole_characters() -> None:
    lm = small("byte level")
    asked: list[str] = []
    state = Predicate(lambda text: not asked.append(text)).start(lm)  # type: ignore[func-returns-value]
    for byte in "aé😀".encode():
        token = lm.vocabulary.byte_vocab.index(bytes([byte]))
        assert state.allows(token)
        assert state.advance(token)
    assert asked == ["a", "aé", "aé😀"]
    assert not state.allows(lm.vocabulary.byte_vocab.index(b"\x80"))  # no character goes on with that
    state.advance(lm.vocabulary.byte_vocab.index(b"\xf0"))
    assert not state.can_end  # half a character is no text


def test_a_limit_counts_tokens() -> None:
    lm = small("byte level")
    state = (Regex("a*") & TokenLimit(2)).start(lm)
    a = lm.vocabulary.byte_vocab.index(b"a")
    assert state.advance(a)
    assert state.advance(a)
    assert state.mask() == lm.eos_token_ids


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice([]), "at least one"),
        (lambda: Choice("abc"), "list of texts"),
        (lambda: Choice(["a", 3]), "list of texts"),  # type: ignore[list-item]
        (lambda: Choice(["\ud800"]), "surrogate"),
        (lambda: Lark("start: foo"), "unknown name"),
        (lambda: Lark("start: /(?=a)/"), "look-around"),
        (lambda: Lark(3), "is a text"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_built_says_why(make: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TokenLimit(-1),
        lambda: TokenLimit(True),
        lambda: Predicate(3),  # type: ignore[arg-type]
        lambda: Not("a"),  # type: ignore[arg-type]
        lambda: And(),
        lambda: Regex("a").start("a model"),
    ],
)
def test_wrong_arguments(make: Any) -> None:
    with pytest.raises(ArgumentError):
        make()


def test_async_checkers_are_refused() -> None:
    async def checker(text: str) -> bool:
        return True

    with pytest.raises(ArgumentError, match="function from a text"):
        Predicate(checker)
