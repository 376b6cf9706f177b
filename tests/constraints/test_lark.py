"""`Lark` and `Choice`: what of llguidance's form of grammars is taken, and what is refused."""

from typing import Any

import pytest

from hfppl.constraints import Choice, Lark
from hfppl.errors import ConstraintError
from hfppl.tokens import Vocabulary


class Tokens:
    """Letters, a special token and an end token."""

    vocabulary = Vocabulary([b"a", b"b", b"ab", b"<|x|>", b"<|end|>"], special_ids=[3, 4])
    eos_token_ids = frozenset({4})


def accepts(constraint: Any, text: str) -> bool:
    state = constraint.start(Tokens())
    return bool(state.advance_bytes(text.encode()) and state.can_end)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('%llguidance {"no_forcing": false}\nstart: "ab"', "options of llguidance"),
        ('start: x "c"\nx[max_tokens=1]: /[ab]*/', "attributes of rules"),
        ("start: x\nx[temperature=0.5]: /[ab]*/", "attributes of rules"),
        ('start[capture]: "a"', "attributes of rules"),
        ('start: "\ud800"', "lone surrogate"),
        ("start: missing", "missing"),
        ("start: /(?=a)a/", "look-around"),
        ("", "grammar"),
        (3, "is a text"),
    ],
)
def test_what_is_not_about_texts_is_refused(grammar: Any, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        Lark(grammar)


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('start: "a" <[99]>', r"names <\[99\]>: this vocabulary has no such token"),
        ('start: "a" <[3-5]>', "no such token"),
        ('start: "a" <|nope|>', r"names <\|nope\|>: this vocabulary has no such token"),
        ('start: "a" <[4]>', r"names <\[4\]>, an end token"),
        ('start: "a" <|end|> "b"', r"names <\|end\|>, an end token"),
    ],
)
def test_a_special_token_must_be_one_of_the_vocabulary(grammar: str, message: str) -> None:
    constraint = Lark(grammar)
    with pytest.raises(ConstraintError, match=message):
        constraint.start(Tokens())


@pytest.mark.parametrize("name", ["<|x|>", "<[3]>"])
def test_a_special_token_is_named(name: str) -> None:
    state = Lark(f'start: "a" {name} "b"').start(Tokens())
    for token_id in (0, 3, 1):
        assert state.mask().ids.tolist() == [token_id]
        state.advance(token_id)
    assert state.can_end


@pytest.mark.parametrize(
    "grammar", ['start: "%llguidance" | "<[99]>"', "start: /x[ab]/ // y[lazy]: <|no|>\n"]
)
def test_what_only_looks_like_it_is_text(grammar: str) -> None:
    Lark(grammar).start(Tokens())


def test_a_terminal_takes_all_it_can() -> None:
    assert not accepts(Lark('start: A "a"\nA: /a+/'), "aa")
    assert accepts(Lark('start: A "b"\nA: /a+/'), "aab")


def test_what_is_ignored_stands_between_terminals() -> None:
    spaced = Lark('start: "a" "b"\n%ignore " "')
    assert accepts(spaced, "a  b")
    assert not accepts(spaced, " ab")
    assert not accepts(spaced, "ab ")


@pytest.mark.parametrize("texts", [None, 3, [], "ab", ["a", 3], [["a"]], ["\ud800"]])
def test_a_choice_is_a_list_of_texts(texts: Any) -> None:
    with pytest.raises(ConstraintError):
        Choice(texts)


def test_the_texts_of_a_choice_are_taken_to_the_letter() -> None:
    texts = ["", "a.b", "[x]", "\n", "é|", "a/b", "\\d", '"', "😀"]
    rule = Choice(texts)
    for text in [*texts, "axb", "x", "5", "é", "a"]:
        assert accepts(rule, text) == (text in texts), text
