"""The masks of a `Regex` hold every token that can go on to a text of it, and no other."""

import asyncio
import collections
import functools
import itertools
import math
import random
import re

import pytest

from hfppl import CachedCausalLM, LMContext, Model, enumerate_exact, smc_standard
from hfppl.constraints import Regex, State
from hfppl.errors import ConstraintError
from tests.tables import always, table_lm

# --- against every text over five letters

LETTERS = ("a", "b", "é", "😀", "🚀")  # the last stands for every character that no pattern names
VOCAB = [
    *(
        text.encode()
        for text in ("a", "b", "é", "😀", "ab", "ba", "aa", "bé", "😀😀", "a😀", "ab", "c", "bc", "aé")
    ),
    *(
        b"\xf0",
        b"\x9f",
        b"\xf0\x9f",
        b"\x98\x80",
        b"\x80",
        b"a\xf0\x9f\x98",
        b"\x80b",
        b"\x98",
        b"\xc3",
        b"\xa9",
    ),
    *(b"\xa9a", b"b\xc3", b"\xff", b"\x80\xff", b"", b"<end>"),
]
EMPTY, END = len(VOCAB) - 2, len(VOCAB) - 1
SMALL = CachedCausalLM.from_function(VOCAB, lambda ids: [0.0] * len(VOCAB), [END])
PATTERNS = [
    *(
        "",
        "a",
        "ab",
        "a|ab|aba",
        "(ab|a)*",
        "a*b",
        "a{2,3}?",
        "(aa)*",
        "é",
        "[é😀]+",
        "😀",
        ".",
        "a.b",
        "[^a]{,2}",
    ),
    *("(a|bé)?😀", "(b|😀😀)*", "[^é]", "(?i:[^B])b"),
]


def known(char: str) -> str:
    return char if char in LETTERS else LETTERS[-1]


@functools.cache
def halves() -> dict[bytes, set[str]]:
    """From the first bytes of a character to the letters that begin so, as `known` has them."""
    found = collections.defaultdict(set)
    for char in map(chr, (*range(0xC0, 0x100), *range(0x10000, 0x40000))):  # which begin with C3 or F0
        data = char.encode()
        for end in range(1, len(data)):
            found[data[:end]].add(known(char))
    return dict(found)


def split(data: bytes) -> tuple[str, bytes]:
    """Whole characters, as `known` has them, and what is left over."""
    try:
        return "".join(map(known, data.decode())), b""
    except UnicodeDecodeError as error:
        return "".join(map(known, data[: error.start].decode())), data[error.start :]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_mask_holds_what_a_text_can_go_on_with(pattern: str) -> None:
    texts = ("".join(text) for length in range(7) for text in itertools.product(LETTERS, repeat=length))
    members = set(filter(re.compile(pattern, re.ASCII).fullmatch, texts))
    beginnings = {text[:end] for text in members for end in range(len(text) + 1)}

    def can_go_on(data: bytes) -> bool:
        text, rest = split(data)
        if not rest:
            return text in beginnings
        return any(text + char in beginnings for char in halves().get(rest, ()))

    start = Regex(pattern).start(SMALL)
    for seed in range(30):
        rng = random.Random(seed)
        state, data = start.copy(), b""
        while len(data.decode(errors="replace")) < 4:
            text, rest = split(data)
            is_member = not rest and text in members
            expected = {i for i, token in enumerate(VOCAB[:EMPTY]) if can_go_on(data + token)}
            if expected or is_member:
                expected.add(EMPTY)
            assert set(state.text_mask()) == expected, data
            assert state.can_end == is_member, data
            assert set(state.mask()) == expected | ({END} if is_member else set()), data
            if not expected - {EMPTY}:
                break
            token_id = rng.choice(sorted(expected))
            assert state.advance(token_id)
            data += VOCAB[token_id]


def test_where_no_token_fits_the_mask_is_empty() -> None:
    lm = CachedCausalLM.from_function(["a", "ab", "c", "<end>"], lambda ids: [0.0] * 4, [3])
    state = Regex("a(bx|c)").start(lm)
    assert set(state.mask()) == {0, 1}
    state.advance(1)
    assert not state.mask()
    assert not state.can_end


# --- the default model's tokenizer


@pytest.fixture(scope="module")
def real() -> CachedCausalLM:
    return CachedCausalLM.from_pretrained(backend="mock")


def spelled(state: State, byte_vocab: list[bytes]) -> set[bytes]:
    """Every text that the masks of a state lead to, in whatever tokens."""
    ends: set[bytes] = set()
    seen = {b""}
    waiting = [(b"", state)]
    while waiting:
        data, here = waiting.pop()
        if here.can_end:
            ends.add(data)
        for token_id in here.text_mask():
            longer = data + byte_vocab[token_id]
            if longer not in seen:
                seen.add(longer)
                there = here.copy()
                assert there.advance(token_id)
                waiting.append((longer, there))
    return ends


def test_every_character_of_a_range_can_be_spelled_and_no_other(real: CachedCausalLM) -> None:
    emoji = [chr(point) for point in range(ord("😀"), ord("🙏") + 1)]
    start = Regex("[😀-🙏]").start(real)
    assert spelled(start, real.byte_vocab) == {char.encode() for char in emoji}
    one_byte = {token: i for i, token in enumerate(real.byte_vocab) if len(token) == 1}
    for char in emoji:
        state = start.copy()
        for byte in char.encode():
            assert one_byte[bytes([byte])] in state.text_mask()
            assert state.advance(one_byte[bytes([byte])])
        assert set(state.mask()) == set(real.eos_token_ids)


def test_every_way_to_split_a_text_is_allowed(real: CachedCausalLM) -> None:
    first = {real.byte_vocab[i] for i in Regex("hello world").start(real).text_mask()}
    assert first == {token for token in real.byte_vocab if token and b"hello world".startswith(token)}
    assert len(first) > 3


def test_a_special_token_is_never_text(real: CachedCausalLM) -> None:
    special = [i for i in range(real.vocab_size) if real.vocabulary.special[i]]
    name = real.byte_vocab[special[0]].decode()
    for pattern in ("(?s).*", re.escape(name)):
        mask = Regex(pattern).start(real).text_mask()
        assert mask
        assert not set(special) & set(mask)


def test_repeats_inside_repeats_are_followed_through_a_long_text(real: CachedCausalLM) -> None:
    state = Regex(r"(\w{1,20}\s?){1,100}").start(real)
    for token_id in real.tokenizer.encode(
        "There are many ways to read a plain sentence of ordinary words " * 3
    ):
        assert token_id in state.mask()
        assert state.advance(token_id)
    assert state.can_end


# --- what users met


class Constrained(Model):
    """A text of a rule, under a language model."""

    def __init__(self, lm: CachedCausalLM, rule: Regex) -> None:
        super().__init__()
        self.context = LMContext(lm, "")
        self.state = rule.start(self.context)

    async def step(self) -> None:
        await self.observe(self.context.mask_dist(self.state.mask()), True)
        token = await self.sample(self.context.next_token())
        self.state.advance(token)
        if int(token) in self.context.lm.eos_token_ids:
            self.finish()


async def lengths(pattern: str, *probabilities: float, max_steps: int | None = None) -> dict[int, float]:
    """The law of the length of a text of `pattern`, made of `1` and the end."""
    lm = table_lm(always(*probabilities), ["1", "<end>"], [1])
    particles = await enumerate_exact(Constrained(lm, Regex(pattern)), max_steps=max_steps)
    return {len(text.removesuffix("<end>")): p for text, p in particles.posterior().items()}


async def test_may_stop_is_not_must_stop() -> None:
    law = await lengths("1*", 0.5, 0.5, max_steps=24)
    assert [law[length] for length in range(4)] == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 16], abs=1e-5)
    law = await lengths("1{1,3}", 0.9, 0.1)
    total = 0.9 + 0.81 + 0.729
    assert law == pytest.approx({1: 0.9 / total, 2: 0.81 / total, 3: 0.729 / total})


async def test_a_text_may_end_at_every_step_where_the_empty_one_may() -> None:
    lm = table_lm(always(1 / 3, 1 / 3, 1 / 3), ["0", "1", "<end>"], [2])
    state = Regex("[01]*").start(lm)
    for token_id in (0, 1, 1, 0):
        assert set(state.mask()) == {0, 1, 2}
        assert state.advance(token_id)
    particles = await enumerate_exact(Constrained(lm, Regex("[01]{,8}")))
    total = sum((2 / 3) ** length for length in range(9)) / 3
    assert math.exp(particles.log_marginal_likelihood) == pytest.approx(total)
    assert particles.posterior()["<end>"] == pytest.approx(1 / 3 / total)


async def test_a_malformed_pattern_is_its_own_callers_error() -> None:
    lm = table_lm(always(0.4, 0.3, 0.2, 0.1))

    async def run(pattern: str) -> dict[str, float]:
        rule = Regex(pattern)
        return (await smc_standard(Constrained(lm, rule), 8, seed=1)).posterior()

    good, bad, other = await asyncio.gather(run("[ab]{2}"), run("("), run("c"), return_exceptions=True)
    assert isinstance(bad, ConstraintError)
    assert all(re.fullmatch(r"[ab]{2}\.", text) for text in good)
    assert set(other) == {"c."}
    assert good
