"""`Regex` has the texts that Python's `re.fullmatch` has, and refuses by name what it cannot match."""

import re
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfppl import CachedCausalLM, HfpplError
from hfppl.constraints import Regex, State
from hfppl.constraints.regex_dialect import translate
from hfppl.errors import ConstraintError

BYTES = CachedCausalLM.from_function(
    [*(bytes([i]) for i in range(256)), "<end>"], lambda ids: [0.0] * 257, [256]
)


def ends_after(start: State, text: str) -> bool:
    state = start.copy()
    return state.advance_bytes(text.encode()) and state.can_end


TEXTS = [
    "", "a", "b", "ab", "ba", "aa", "aaa", "abab", "abc", "A", "Ab", "k", "K", "\u212a", "s", "S", "ſ",
    "ss", "ß", "ẞ", "é", "É", "e\u0301", "i", "I", "İ", "ı", "ς", "σ", "Σ", "µ", "μ", "ǆ", "ǅ",
    "\U00010400", "\U00010428", "1", "12", "123", "٣", "１", "_", "-", "^", "]", "[", "\\", "/", "//", "#",
    "a/b", "a b", " ", "\t", "\n", "\r", "a\n", "\na", "a\nb", "a b\n", "\x00", "\x1f", "\x85", "\xa0",
    "\u2028", "\u3000", "{", "a{,}", "{}", "a{1", '"', "'", "😀", "🙏", "😀😀", "🚀", "\ud7ff", "\ue000",
    "\U0010ffff", "中文", ".", "1.2", "1.2.3", "(a)", "a|b", "a#b", "a.b", "[:alpha:]",
]  # fmt: skip
PATTERNS = [
    "", "a", "abc", "a|ab|abc", "(a|ab)(c|bc|)", "(?:)", "(|a)", "(a|)+", "(|a)+?", "a*", "a*?", "a+?b??",
    "a{2}", "a{,2}", "a{2,}", "a{1,2}?", "a{0}", "(ab){2}", "(a?){3}", "((a*)*b?)*", "(?P<name>a)b", "a{,}",
    "{}", "a{1", ".", "..", "(?s).", "(?s:.).", "a.b", "(?s)a.b", "[ab]", "[^ab]", "[^a]", r"[^\n]", "[]]",
    "[^]]", "[]a^-]", "[a-c]+", r"[\]\[]", r"[\\/]", "/", "//", "a/b", r"\/", "#", r"\#", '"', r"[\d_-]",
    r"[\w-]", r"[\W\d]", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\d+", r"\w+", r"[^\W\d_]+", r"[^\s]",
    r"[\s\S]", r"\d+(\.\d+)*", "(?i)a", "(?i)k", "(?i)\u212a", "(?i)ſ", "(?i)s", "(?i)ß", "(?i)ẞ", "(?i)é",
    "(?i)i", "(?i)İ", "(?i)ı", "(?i)σ", "(?i)µ", "(?i)ǆ", "(?i)\U00010400", "(?i)[a-z]", "(?i)[^k]",
    "(?i)[j-l]+", "(?i)[À-ſ]", r"(?i)\w", "(?i)1", "(?i:a)b", "(?i)a(?-i:b)", "(?i)(a|B)*", "(?i)a|b|ab",
    "(?i)(?s).", "(?i)[\U00010400-\U00010410]", "(?x) a b # c", r"(?x)a\ b", r"(?x:a\ b)\n",
    "(?x)[ab] [c ]?", r"(?a)\w", r"(?a:\w)", r"(?u:\w)", "(?a)(?i)k", "^a$", r"\Aa", "^a|b$", "(^a|^b)$",
    "^(a$|b)", "^$", "$", "$^", "(?:^a)?b?", "(?m)^a$", "a$()", "^^a$$", "a(b$)?", r"\x61", r"\u00e9",
    r"\U0001F600", r"\N{GRINNING FACE}", r"\0", r"\141", r"\t", r"\n", r"\.", r"\{", r"\(a\)", r"a\|b",
    "[😀-🙏]", "[^😀]", "😀+", "é", "e\u0301", "中文|日本", r"[\x00-\x1f]", "a|\ud800", r"a[^\s\S]*",
    "\ud800?a", "(){2,}a", "(?#note)a", "[\ud000-\U0010ffff]", r"[a[^b]", r"[&|~-]", r"\[:alpha:]",
]  # fmt: skip


@pytest.mark.parametrize("ascii", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_texts_are_those_of_fullmatch(pattern: str, ascii: bool) -> None:
    compiled = re.compile(pattern, re.ASCII if ascii else 0)
    start = Regex(pattern, ascii=ascii).start(BYTES)
    found = {text for text in TEXTS if ends_after(start, text)}
    assert found == {text for text in TEXTS if compiled.fullmatch(text)}
    assert found or ascii, "no text of the table shows what this pattern matches"


# --- patterns made at random, with a text that they are likely to match

LEAVES = {
    "a": "a", "b": "b", "k": "kK", "ſ": "ſsS", "ß": "ß", "ẞ": "ẞß", "é": "éÉ", "😀": "😀", r"\.": ".",
    "/": "/", "#": "#", r"\n": "\n", r"\(": "(", "-": "-", ".": "ab😀\n", "[ab]": "ab", "[^ab]": "k/\n😀A",
    "[a-z-]": "ab-K", r"[^\w]": "/-é", r"[\]\\]": "]\\", "[😀-🙏]": "😀🙏", r"[^\n]": "aé", r"\d": "1٣",
    r"\w": "aé٣", r"\W": "/é", r"\s": " \n\xa0", r"[\s\d]": " 1٣", "(?i:k)": "kK\u212a", "(?i:ſ)": "sſS",
    "(?i:[^s])": "aſ", "(?-i:k)": "kK", "(?s:.)": "\na", "(?u:[é-ü])": "éÉ", r"(?a:\w)": "aé",
    "(?i:ß|i)": "ßẞİı",
}  # fmt: skip
LETTERS = "abkK\u212aſsSßẞéÉ.\\/#\n(-]😀🙏1٣ \xa0"


@st.composite
def cases(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """A pattern, and a text that it matches unless case or ASCII are against it."""
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind <= 1:
        leaf = draw(st.sampled_from(sorted(LEAVES)))
        return leaf, draw(st.sampled_from(LEAVES[leaf]))
    pattern, text = draw(cases(depth - 1))
    if kind == 2:
        more, tail = draw(cases(depth - 1))
        return pattern + more, text + tail
    if kind == 3:
        other, instead = draw(cases(depth - 1))
        group = draw(st.sampled_from(["(?:", "(", "(?i:", "(?-i:", "(?s:"]))
        return f"{group}{pattern}|{other})", draw(st.sampled_from([text, instead]))
    repeat, times = draw(
        st.sampled_from([("*", 2), ("+", 1), ("?", 0), ("{2}", 2), ("{1,2}", 2), ("{,2}", 3)])
    )
    return f"(?:{pattern}){repeat}{draw(st.sampled_from(['', '?']))}", text * times


@settings(max_examples=120, deadline=None, derandomize=True)
@given(cases(), st.lists(st.text(LETTERS, max_size=4), max_size=8), st.booleans(), st.booleans())
def test_the_texts_of_any_pattern_are_those_of_fullmatch(
    case: tuple[str, str], others: list[str], ascii: bool, ignore_case: bool
) -> None:
    pattern, text = case
    pattern = f"(?i){pattern}" if ignore_case else pattern
    compiled = re.compile(pattern, re.ASCII if ascii else 0)
    start = Regex(pattern, ascii=ascii).start(BYTES)
    for candidate in [text, text[:-1], text + text[-1:], *others]:
        assert ends_after(start, candidate) == bool(compiled.fullmatch(candidate)), candidate


EVERY = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
CLASSES = [r"\w", r"\W\d", r"\sʼnǰ"]
CASED = [
    "k",
    "ſ",
    "ß",
    "ẞ",
    "İ",
    "ı",
    "µ",
    "ǅ",
    "\u0345",
    "ﬅ",
    "Ꭰ",
    "\U00010400",
    "A-Z",
    "\U0001e900-\U0001e943",
]


def place(point: int) -> int:
    return point if point < 0xD800 else point - 0x800


def characters(translated: str) -> str:
    """All characters of a set, as `translate` writes it: a class of ranges, or one character."""
    points = [
        int(code, 16) if code else ord(char) for code, char in re.findall(r"\\u\{(\w+)\}|(\w)", translated)
    ]
    ranges = zip(points[::2], points[1::2], strict=True) if translated.startswith("[") else [(points[0],) * 2]
    return "".join(EVERY[place(low) : place(high) + 1] for low, high in ranges)


@pytest.mark.parametrize(
    ("sets", "flags"),
    [(CLASSES, re.UNICODE), (CLASSES, re.ASCII), (CLASSES + CASED, re.IGNORECASE), (["k"], re.A | re.I)],
)
def test_a_set_is_the_same_among_all_code_points(sets: list[str], flags: re.RegexFlag) -> None:
    for chars in sets:
        members, others = f"[{chars}]", f"[^{chars}]"
        found = [match.groups() for match in re.finditer(f"({members}*)({others}*)", EVERY, flags)]
        assert characters(translate(members, flags)) == "".join(inside for inside, _ in found), chars
        assert characters(translate(others, flags)) == "".join(outside for _, outside in found), chars


# --- compiled patterns


def test_a_compiled_pattern_comes_with_its_flags() -> None:
    start = Regex(re.compile("a.b", re.IGNORECASE | re.DOTALL)).start(BYTES)
    assert ends_after(start, "A\nB")
    assert not ends_after(Regex(re.compile("a b", re.VERBOSE)).start(BYTES), "a b")


@pytest.mark.parametrize(
    ("flags", "ascii", "digits"),
    [(0, True, "1"), (0, False, "1٣"), (re.ASCII, True, "1"), (re.ASCII, False, "1")],
)
def test_ascii_holds_for_a_compiled_pattern_unless_it_says_so_itself(
    flags: int, ascii: bool, digits: str
) -> None:
    start = Regex(re.compile(r"\d", flags), ascii=ascii).start(BYTES)
    assert "".join(digit for digit in "1٣" if ends_after(start, digit)) == digits


def test_repr_shows_the_pattern() -> None:
    assert repr(Regex(r"\d+")) == r"Regex('\\d+')"
    assert repr(Regex("a", ascii=False)) == "Regex('a', ascii=False)"
    assert repr(Regex(re.compile("a", re.IGNORECASE))) == "Regex(re.compile('a', re.IGNORECASE))"


# --- refusals

REFUSED = [
    ("(?=a)a", "look-ahead.*combine constraints"),
    ("(?!ab)[a-c]{2}", "look-ahead.*combine constraints"),
    ("a(?!)", "look-ahead"),
    ("(?<=a)b", "look-behind.*write"),
    ("(?<!a)b", "look-behind.*write"),
    (r"\ba+\b", r"word boundary \\b has.*write"),
    (r"a\Bb", r"\\B, which is no word boundary.*write"),
    (r"(a)\1", "back-reference.*write out"),
    ("(?P<x>a)(?P=x)", "back-reference.*write out"),
    ("(<)?a(?(1)>|)", "conditional group.*write both cases"),
    ("a++", r"possessive repeat.*write a\+"),
    ("a*+b", "possessive repeat"),
    ("a{1,2}+", "possessive repeat"),
    ("(?>a|ab)c", r"atomic group.*write \(\?:"),
    (r"a\Z", r"anchor \\Z.*leave it out"),
    ("[[:alpha:]]", r"POSIX class \[:alpha:\].*write the characters"),
    ("[^[:space:]]", r"POSIX class \[:space:\]"),
    (r"\\[:^digit:]", r"POSIX class \[:\^digit:\]"),
    ("[a-c&&b]", "set intersection at position 4.*backslash"),
    ("[a--b]", "set difference at position 2.*backslash"),
    ("[a||b]", "set union at position 2.*backslash"),
    ("[a~~b]", "set symmetric difference at position 2.*backslash"),
    ("[[a]b]", "nested set at position 1.*backslash"),
    ("a^b", r"anchor \^ .*very beginning"),
    (r"a\Ab", r"anchor \\A .*very beginning"),
    ("a$b", r"anchor \$ .*very end"),
    ("$a", r"anchor \$ .*very end"),
    ("(^a)*", r"anchor \^ "),
    ("(?:a$){2}", r"anchor \$ "),
    ("(?:$|a)(?:^|b)", r"anchor \$ "),
    ("x(?:^a|b)", r"anchor \^ "),
    (r"(?m)a$\n^b", r"anchor \$ under the MULTILINE flag.*write the line breaks"),
    (r"a\n(?m:^)b", r"anchor \^ under the MULTILINE flag"),
    ("(?L)a", "'L' flag"),
    (r"(?u)\w", "ASCII and UNICODE flags are incompatible.*ascii=False"),
    ("(", "missing \\), unterminated subpattern at position 0"),
    ("ab[", "unterminated character set at position 2"),
    ("a**", "multiple repeat at position 2"),
    (r"\1(a)", "invalid group reference 1 at position 1"),
    ("a(?i)b", "global flags not at the start of the expression at position 1"),
    ("a{99999999999}", "repetition number is too large"),
    ("(?:" * 3000 + "a" + ")*b" * 3000, "nested too deep.*fewer levels"),
    ("(?:" * 140 + "a" + ")*b" * 140, r"number of nested parentheses"),
    (r"[^\s\S]", "no text at all"),
    (r"a[^\s\S]|[^\w\W]+", "no text at all"),
    ("\ud800", "no text at all"),
]


@pytest.mark.parametrize(("pattern", "words"), REFUSED, ids=[pattern[:20] for pattern, _ in REFUSED])
def test_what_has_no_counterpart_is_refused_by_name(pattern: str, words: str) -> None:
    with pytest.raises(ConstraintError, match=re.compile(words, re.DOTALL)) as refused:
        Regex(pattern)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, HfpplError)
    assert repr(pattern) in str(refused.value)


def test_a_refusal_does_not_depend_on_what_stands_beside_it() -> None:
    for pattern in (r"[^\s\S](?=a)", r"(?:\bx){0}", r"a|[^\s\S]\b"):
        with pytest.raises(ConstraintError, match=r"look-ahead|word boundary"):
            Regex(pattern)


@pytest.mark.parametrize("pattern", [b"a", re.compile(b"a"), 3, None])
def test_only_patterns_of_str_are_taken(pattern: object) -> None:
    with pytest.raises(ConstraintError, match="needs a pattern of str"):
        Regex(pattern)  # type: ignore[arg-type]


def test_the_filters_of_warnings_stay_as_they_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = list(warnings.filters)
        with pytest.raises(ConstraintError, match="nested set"):
            Regex("[[a]")
        assert list(warnings.filters) == before


# --- large patterns


@pytest.mark.parametrize(
    ("pattern", "member", "stranger"),
    [
        ("|".join(f"word{i}x{i * 7}" for i in range(1500)), "word1499x10493", "word1499x1049"),
        (r"\w+\s\W[^\d]*" * 10, "é  !x" * 10, "é  !x" * 9),
        ("a{0,2000}", "a" * 2000, "a" * 2001),
        ("(a{0,50}b){0,50}", ("a" * 50 + "b") * 50, ("a" * 51 + "b") * 2),
        ("(?:a{60000}){0,60000}b", "b", "ab"),
        (r"(\w{1,20} ?){1,100}", "so many ways to read these words " * 3, "so " * 101),
    ],
    ids=["alternatives", "classes", "repeat", "repeats in repeats", "numbers", "ambiguous repeats"],
)
def test_large_patterns(pattern: str, member: str, stranger: str) -> None:
    start = Regex(pattern, ascii=False).start(BYTES)
    assert len(start.text_mask()) > 0
    assert ends_after(start, member)
    assert not ends_after(start, stranger)
