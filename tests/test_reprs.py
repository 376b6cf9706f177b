"""What things look like at a prompt and in a notebook: short, asking nothing, inert whatever was written."""

import ast
import html.parser
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import Counted, always, random_law, table_lm

from hfppl import (
    Bernoulli,
    CachedCausalLM,
    Distribution,
    Geometric,
    LMContext,
    LogCategorical,
    Particles,
    TokenCategorical,
    Transformer,
    enumerate_exact,
)
from hfppl.display import Bars, bars_html, columns, likeliest, prompt_and_text_html, token_label, visible
from hfppl.modeling import Model

NASTY = "<script>alert('&\"')</script>\r\n\x1b[2J\u202eback\u2066\x00\ud800\u200b\ufffd"
VOCAB = ["a", "<b>", "\u202e", b"\xe2\x96", "\n", "."]


class Given:
    """A particle with a text and a weight."""

    def __init__(self, text: str, weight: float, finished: bool = True) -> None:
        self.text, self.weight, self.finished = text, weight, finished

    def done_stepping(self) -> bool:
        return self.finished

    def untwist(self) -> None: ...

    def __str__(self) -> str:
        return self.text


class Page(html.parser.HTMLParser):
    """A page as a browser reads it: its tags with their attributes, its text, and whether all is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def widths(self) -> list[float]:
        """The lengths of the bars, in per cent."""
        return [float(s.split("%")[0].removeprefix("width:")) for s in self.styles if s.startswith("width:")]


def check_inert(page: str) -> Page:
    """Nothing but our own tags, no attribute that could do anything, and no character unseen."""
    parsed = Page(page)
    assert parsed.tags <= {"div", "table", "tr", "td", "code", "span", "bdi", "i"}
    assert parsed.attributes <= {"style"}
    assert not any("url" in style or "import" in style for style in parsed.styles)
    assert page.replace("\n", "").isprintable()
    page.encode()
    return parsed


def check_one_line(shown: str, limit: int = 250) -> None:
    assert shown.isprintable()
    assert columns(shown) <= limit
    shown.encode()


# --- text


@given(st.text(max_size=60), st.integers(10, 80), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_visible_text_is_a_literal_that_fits(text: str, limit: int, end: bool) -> None:
    shown = visible(text, limit, end)
    assert shown.isprintable()
    assert columns(shown) <= limit
    value = ast.literal_eval(shown)
    if value != text:
        kept = value.removeprefix("... ") if end else value.removesuffix(" ...")
        assert columns(repr(text)) > limit
        assert value != kept
        assert text.endswith(kept) if end else text.startswith(kept)
        assert columns(shown) > limit - 10 - 2  # no more is lost than the next character needs


def test_what_does_not_fit_is_cut_between_characters() -> None:
    assert visible("a" * 30, 20) == "'aaaaaaaaaaaaaa ...'"
    assert visible("a" * 30, 20, end=True) == "'... aaaaaaaaaaaaaa'"
    assert visible("a" * 12 + "\u202e" * 9, 20) == "'aaaaaaaaaaaa ...'"
    assert visible("語" * 30, 20) == f"'{'語' * 7} ...'"
    assert visible("a" * 18, 20) == f"'{'a' * 18}'"
    assert len(visible("e" + "\u0301" * 10**6)) < 120


def test_tokens_are_told_by_text_or_else_by_bytes() -> None:
    assert token_label(b" word") == "' word'"
    assert token_label("\u202e".encode()) == r"'\u202e'"
    assert token_label(b"\xe2\x96") == r"b'\xe2\x96'"
    assert token_label("\ufffd".encode()) == "'\ufffd'"  # which is that character itself
    assert token_label(b"") == "''"


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_a_generation_as_html_is_inert_and_whole(prompt: str, text: str) -> None:
    page = check_inert(prompt_and_text_html(prompt, text))
    assert page.text.replace("\n", "") == "".join(
        c if c.isprintable() else repr(c)[1:-1] for c in prompt + text
    )
    assert page.text.count("\n") == (prompt + text).count("\n")


def test_a_long_generation_shows_its_end() -> None:
    page = check_inert(prompt_and_text_html("p" * 10_000 + "!", "t" * 10_000 + "?"))
    assert page.text.count("... ") == 2
    assert "!" in page.text
    assert page.text.endswith("?")
    assert len(page.text) < 6000


# --- bars


def test_the_likeliest_and_what_is_left() -> None:
    bars = likeliest(np.array([0.1, 0.0, 0.4, 0.1, 0.4]), str, 3)
    assert bars.rows == [("2", 0.4), ("4", 0.4), ("0", 0.1)]
    assert bars.rest is not None
    assert bars.rest[0] == "1 more"
    assert bars.rest[1] == pytest.approx(0.1)
    assert likeliest(np.array([0.0, 1.0]), str).rest is None
    assert likeliest(np.zeros(3), str) == Bars([], None)


def test_bars_are_as_long_as_they_are_likely() -> None:
    page = check_inert(bars_html(Bars([("a<", 0.5), ("b", 0.25), ("c", 0.0)], ("9 more", 0.25))))
    assert page.widths == [100.0, 50.0, 0.0]
    assert page.text == "0.5000a<0.2500b0.0000c0.25009 more"
    check_inert(bars_html(Bars([])))


# --- populations


def test_particles_tell_all_in_a_few_lines() -> None:
    many = [Given(f"text {i}", -0.1 * i) for i in range(30)]
    particles = Particles([*many, Given("dead", -math.inf), Given("open", 0.0, False)])
    particles.log_marginal_likelihood_se = 0.25
    first, *rows = repr(particles).splitlines()
    assert first == (
        f"32 particles, ESS {particles.ess:.1f}, log Z {particles.log_marginal_likelihood:.3f} ± 0.250, "
        "1 dead, 1 unfinished"
    )
    posterior = particles.posterior()
    assert rows[0] == f"  {posterior['text 0']:7.4f}  'text 0'"
    assert len(rows) == 20
    assert rows[-1] == f"  {sum(list(posterior.values())[19:]):7.4f}  (11 more)"
    page = check_inert(particles._repr_html_())
    assert page.text.startswith(first)
    assert page.text.endswith("11 more")
    assert len(page.widths) == 19
    assert page.widths[0] == 100


def test_nothing_in_a_particles_text_acts() -> None:
    particles = Particles([Given(NASTY, 0.0), Given("é日本" * 300, 0.0)])
    shown, page = repr(particles), check_inert(particles._repr_html_())
    assert shown.replace("\n", "").isprintable()
    assert len(shown.splitlines()) == 3
    assert r"\u202eback\u2066\x00\ud800\u200b" in shown
    assert repr(NASTY) in page.text
    assert max(map(columns, shown.splitlines())) < 120


async def test_an_enumeration_tells_of_paths() -> None:
    class Coins(Model):
        async def step(self) -> None:
            self.n = int(await self.sample(Bernoulli(0.9))) + int(await self.sample(Bernoulli(0.5)))
            self.finish()

        def __str__(self) -> str:
            return str(self.n)

    exact = await enumerate_exact(Coins())
    assert repr(exact).splitlines() == [
        "4 paths, log Z 0.000",
        "   0.5000  '1'",
        "   0.4500  '2'",
        "   0.0500  '0'",
    ]
    part = await enumerate_exact(Coins(), min_prob=0.1)
    assert repr(part).splitlines()[0] == "3 paths, log Z -0.051 to 0.000"
    check_inert(exact._repr_html_())


# --- contexts


def context_of(law: Any, *ids: int, prompt: Any = "a\n", **options: Any) -> tuple[LMContext, CachedCausalLM]:
    lm = table_lm(law, VOCAB, (5,))
    context = LMContext(lm, prompt, **options)
    for token_id in ids:
        context._append(token_id)
    return context, lm


def test_a_context_sets_its_prompt_off() -> None:
    context, _ = context_of(always(*[1 / 6] * 6), 1, 2, 3, 5)
    assert repr(context) == r"<LMContext 'a\n' + '<b>\u202e�.'>"
    page = check_inert(context._repr_html_())
    assert page.text == "a\\n\n<b>\\u202e�.prompt of 2 tokens, 4 since"


def test_a_healed_prompt_is_shown_whole() -> None:
    lm = table_lm(always(0.5, 0.25, 0.25), ["x", ":", "://"], ())
    context = LMContext(lm, "x:", heal=True)
    assert repr(context) == "<LMContext 'x:' + ''>"
    context._append(2)
    assert repr(context) == "<LMContext 'x:' + '//'>"


async def test_looking_asks_the_language_model_nothing() -> None:
    law = Counted(random_law(3, 6))
    context, lm = context_of(law, 1)
    mask = context.mask_dist([0, 1])
    things = [context, context.next_token(), mask, Transformer(lm, "a")]
    for thing in things:
        check_one_line(repr(thing))
    assert [thing._repr_html_() for thing in things[1:]] == [None] * 3  # nothing is known yet
    assert check_inert(context._repr_html_()).widths == []
    assert law.asked == []

    await context.logprobs()
    await lm.next_token_logprobs([0])
    before, asked = lm.stats(), list(law.asked)
    pages = [check_inert(thing._repr_html_()) for thing in things]
    assert [len(page.widths) for page in pages] == [6, 6, 2, 6]
    assert lm.stats() == before
    assert law.asked == asked

    again = LMContext(lm, "a")  # another one that stands where somebody has asked
    assert len(check_inert(again._repr_html_()).widths) == 6
    lm.clear_cache()
    assert check_inert(again._repr_html_()).widths == []
    assert law.asked == asked


async def test_a_contexts_bars_are_under_its_mask_and_temperature() -> None:
    context, lm = context_of(always(0.4, 0.2, 0.1, 0.1, 0.1, 0.1), temp=0.5)
    await context.mask_dist([0, 1]).log_prob(True)
    page = check_inert(context._repr_html_())
    assert "temperature 0.5, next token one of 2" in page.text
    assert page.text.endswith("next token:0.8000'a'0.2000'<b>'")
    answers = check_inert(context.mask_dist([1, 2])._repr_html_() or "")
    assert answers.text.endswith("0.2000True0.8000False")
    assert context.model_mask == lm.token_mask([0, 1])  # looking has narrowed nothing


def test_a_look_changes_no_run() -> None:
    """The state is the same object before and after."""
    context, _ = context_of(random_law(3, 6), 1)
    assert context.next_token_logprobs.shape == (6,)
    state = context._state
    for show in (context.__repr__, context._repr_html_, context.next_token()._repr_html_):
        show()
    assert context._state is state


async def test_a_context_after_a_dead_end() -> None:
    context, _ = context_of(always(1, 0, 0, 0, 0, 0))
    context._narrow(context.lm.token_mask([1]), await context._row(), context._mass(await context._row()))
    check_inert(context._repr_html_())
    check_inert(context.mask_dist([1])._repr_html_() or "")


# --- distributions


@pytest.mark.parametrize(
    ("dist", "shown", "bars"),
    [
        (Bernoulli(0.25), "Bernoulli(0.25)", "0.2500True0.7500False"),
        (Geometric(0.5), "Geometric(0.5)", "0.50001" + "0.25002"),
        (
            LogCategorical(np.log([1, 2, 3, 4, 0.0001])),
            "<LogCategorical of 5: 3 0.4, 2 0.3, 1 0.2, ...>",
            "0.40003" + "0.30002",
        ),
        (LogCategorical([0.0, -np.inf]), "<LogCategorical of 2: 0 1>", "1.00000"),
    ],
)
def test_distributions_on_numbers(dist: Any, shown: str, bars: str) -> None:
    assert repr(dist) == shown
    page = check_inert(dist._repr_html_())
    assert page.text.startswith(shown + bars)
    assert math.isclose(sum(p for _, p in dist._bars().rows) + (dist._bars().rest or ("", 0))[1], 1)


def test_distributions_on_tokens() -> None:
    lm = table_lm(always(*[1 / 6] * 6), VOCAB, (5,))
    dist = TokenCategorical(lm, np.log([0.5, 0.25, 0.125, 0.0625, 0.0625, 1e-300]))
    assert repr(dist) == r"<TokenCategorical: 'a' 0.5, '<b>' 0.25, '\u202e' 0.125, ...>"
    assert r"0.0625b'\xe2\x96'0.0625'\n'" in check_inert(dist._repr_html_() or "").text
    assert repr(Transformer(lm, "a\n<b>")) == r"<Transformer after 'a\n<b>'>"
    assert repr(Transformer(lm, "a", temp=0.5)) == "<Transformer after 'a', temp=0.5>"
    context = LMContext(lm, "a")
    assert repr(context.next_token()) == "<next token of <LMContext 'a' + ''>>"
    assert repr(context.mask_dist([0, 3])) == (
        r"<is the next token of <LMContext 'a' + ''> in <TokenMask of 2 tokens: 'a', b'\xe2\x96'>?>"
    )


def test_long_prompts_and_large_vocabularies() -> None:
    lm = table_lm(always(*[1 / 3000] * 3000), [f"word {i}, " for i in range(3000)], ())
    context = LMContext(lm, "word 7, " * 400)
    assert context.next_token_logprobs.shape == (lm.vocab_size,)
    for thing in (context, context.next_token(), lm.masks.ALL_TOKENS, Transformer(lm, "word 7, " * 400)):
        check_one_line(repr(thing))
    page = check_inert(context._repr_html_())
    assert len(page.widths) == 10
    assert page.text.endswith("0.99672,990 more")


def test_a_users_own_distribution_is_shown_by_its_repr() -> None:
    class Mine(Distribution[int]):
        def support(self) -> Sequence[int]:
            return [1]

    assert Mine()._repr_html_() is None


def test_columns_are_those_of_a_terminal() -> None:
    assert [columns(text) for text in ("abc", "日本", "e\u0301", "ｆ", "שלום", "")] == [3, 4, 1, 2, 4, 0]
    assert unicodedata.east_asian_width("ｆ") == "F"
