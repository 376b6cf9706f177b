"""Reference models small enough to be worked out by hand, each with its exact unnormalised posterior.

The exact side uses nothing of hfppl: it multiplies entries of the tables.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hfppl import (
    Bernoulli,
    CachedCausalLM,
    Geometric,
    LMContext,
    LogCategorical,
    Model,
    TokenCategorical,
    Transformer,
    submodel,
)

VOCAB = ["a", "b", "ab", "c", "."]
A, B, AB, C, END = range(5)
V = len(VOCAB)
Ids = tuple[int, ...]
Law = Callable[[int, Ids], tuple[float, ...]]


@functools.cache
def table(name: int, ids: Ids) -> tuple[float, ...]:
    """The next-token distribution after `ids`: dense, different after every prefix."""
    return tuple(np.random.default_rng([name, *ids]).dirichlet(np.full(V, 2.0)))


@functools.cache
def sparse_table(name: int, ids: Ids) -> tuple[float, ...]:
    """Like `table`, but one token, which depends on the prefix, is impossible."""
    p = np.array(table(name, ids))
    p[(name + sum(ids) + len(ids)) % V] = 0
    return tuple(p / p.sum())


def lm_of(law: Law, name: int) -> CachedCausalLM:
    def next_logits(ids: list[int]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(law(name, tuple(ids)))

    return CachedCausalLM.from_function(VOCAB, next_logits, [END])


LM = lm_of(table, 1)
OTHER = lm_of(table, 2)
SPARSE = lm_of(sparse_table, 3)
DENSE = lm_of(table, 3)  # the same, before a token was made impossible
VOWELS = LM.token_mask([A, AB])
LETTERS = LM.token_mask([A, B, AB, C])
NO_C = LM.token_mask([A, B, AB, END])

Exact = dict[str, float]


@dataclass(frozen=True)
class Reference:
    """A model, and its exact unnormalised posterior over `key(particle)`."""

    make: Callable[[], Model]
    exact: Exact
    key: Callable[[Model], str] = str

    @property
    def z(self) -> float:
        return math.fsum(self.exact.values())


REFERENCES: dict[str, Reference] = {}


def text(ids: Ids) -> str:
    return "".join(VOCAB[i] for i in ids)


def prob(
    ids: Ids, law: Callable[[int, Ids], tuple[float, ...]] = table, name: int = 1, start: Ids = ()
) -> float:
    """Probability of drawing exactly `ids` after `start`."""
    return math.prod(law(name, start + ids[:i])[token] for i, token in enumerate(ids))


def texts(length: int) -> Iterator[Ids]:
    """Every token sequence that ends at its first END, or at `length`."""
    for ids in itertools.product(range(V), repeat=length):
        if END not in ids[:-1]:
            yield ids
    for n in range(1, length):
        for ids in itertools.product(range(V), repeat=n):
            if END not in ids[:-1] and ids[-1] == END:
                yield ids


def gather(pairs: Iterator[tuple[str, float]]) -> Exact:
    masses: Exact = {}
    for key, mass in pairs:
        if mass > 0:
            masses[key] = masses.get(key, 0.0) + mass
    return masses


class Ending(Model):
    """Draws tokens until END, or `length` of them."""

    def __init__(self, length: int = 3) -> None:
        super().__init__()
        self.context = LMContext(LM, "")
        self.length = length

    def end_with(self, token: object) -> None:
        if token == END or self.context.token_count == self.length:
            self.finish()


# --- no constraint at all: Z is 1


class Free(Ending):
    async def step(self) -> None:
        self.end_with(await self.sample(self.context.next_token()))


REFERENCES["free"] = Reference(Free, gather((text(ids), prob(ids)) for ids in texts(3)))


# --- condition; particles die at different steps


class NoRepeats(Ending):
    async def step(self) -> None:
        before = self.context.tokens[-1:]
        token = await self.sample(self.context.next_token())
        self.condition(before != [token.token_id])
        self.end_with(token)


def no_repeats(ids: Ids) -> bool:
    return all(x != y for x, y in itertools.pairwise(ids))


REFERENCES["condition"] = Reference(
    NoRepeats, gather((text(ids), prob(ids)) for ids in texts(3) if no_repeats(ids))
)


# --- masks observed both ways


class Observed(Ending):
    async def step(self) -> None:
        await self.observe(self.context.mask_dist(NO_C), True)
        if self.context.token_count == 1:
            await self.observe(self.context.mask_dist({A, B}), False)
        self.end_with(await self.sample(self.context.next_token()))


REFERENCES["masks observed"] = Reference(
    Observed,
    gather(
        (text(ids), prob(ids)) for ids in texts(3) if C not in ids and not (len(ids) > 1 and ids[1] in (A, B))
    ),
)


# --- a masked proposal, the other context its own


class Proposed(Ending):
    def __init__(self) -> None:
        super().__init__()
        self.q = LMContext(LM, "", temp=1.5)

    async def step(self) -> None:
        await self.intervene(self.q.mask_dist(NO_C), True)
        token = await self.sample(self.context.next_token(), proposal=self.q.next_token())
        self.condition(token.token_id in NO_C)
        self.end_with(token)


REFERENCES["proposal"] = Reference(Proposed, gather((text(i), prob(i)) for i in texts(3) if C not in i))


# --- a proposal that draws what the target cannot


class WildProposal(Ending):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(SPARSE, "")

    async def step(self) -> None:
        ids = self.context.tokens
        token = await self.sample(self.context.next_token(), proposal=Transformer(DENSE, ids, temp=1.5))
        self.end_with(token)


REFERENCES["wild proposal"] = Reference(
    WildProposal, gather((text(ids), prob(ids, sparse_table, 3)) for ids in texts(3))
)


# --- masks sampled, and nested


class Staged(Ending):
    def __init__(self) -> None:
        super().__init__()
        self.answers = ""

    async def step(self) -> None:
        letter = await self.sample(self.context.mask_dist(LETTERS))
        vowel = letter and await self.sample(self.context.mask_dist(VOWELS))
        self.answers += "v" if vowel else "l" if letter else "e"
        if vowel:
            self.score(math.log(0.5))
        self.end_with(await self.sample(self.context.next_token()))


def kind(token: int) -> str:
    return "v" if token in (A, AB) else "e" if token == END else "l"


REFERENCES["masks sampled"] = Reference(
    Staged,
    gather(
        (text(ids) + "/" + "".join(map(kind, ids)), prob(ids) * 0.5 ** sum(kind(i) == "v" for i in ids))
        for ids in texts(3)
    ),
    key=lambda particle: f"{particle}/{particle.answers}",
)


# --- intervene: forced tokens cost nothing, also impossible ones; forced masks cost nothing either


class Forced(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(SPARSE, "")

    async def step(self) -> None:
        if self.context.token_count == 1:
            await self.intervene(self.context.next_token(), C)
        await self.intervene(self.context.mask_dist({A, B, AB}), True)
        await self.sample(self.context.next_token())
        if self.context.token_count == 3:
            self.finish()


def among(ids: Ids, allowed: Ids) -> float:
    """Probability, in the sparse law, of the last of `ids` given that it is one of `allowed`."""
    p = sparse_table(3, ids[:-1])
    return p[ids[-1]] / sum(p[i] for i in allowed)


REFERENCES["intervene"] = Reference(
    Forced,
    gather(
        (text((x, C, y)), among((x,), (A, B, AB)) * among((x, C, y), (A, B, AB)))
        for x, y in itertools.product((A, B, AB), repeat=2)
    ),
)


# --- twists, with particles that finish while twisted


class Twisted(Ending):
    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.twist({A: 1.0, B: -2.0, AB: 0.5, C: -0.5, END: 3.0}[token.token_id])
        self.condition(not str(self.context).startswith("ca"))
        self.end_with(token)


REFERENCES["twist"] = Reference(
    Twisted, gather((text(ids), prob(ids)) for ids in texts(3) if not text(ids).startswith("ca"))
)


# --- a twist of -inf: dead at once


class FatalTwist(Ending):
    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.twist(-math.inf if token == B else 0.3)
        self.end_with(token)


REFERENCES["fatal twist"] = Reference(FatalTwist, gather((text(i), prob(i)) for i in texts(3) if B not in i))


# --- submodels, nested, one object shared by all particles


@submodel
async def draw_one(self, context):
    return await self.sample(context.next_token())


@submodel
async def draw_two(self, context):
    first = await self.call(draw_one(context))
    if first == END:
        return first
    return await self.call(draw_one(context))


class Nested(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "")

    async def step(self) -> None:
        token = await self.call(draw_two(self.context))
        await self.observe(Bernoulli(0.25 if "c" in str(self.context) else 0.75), True)
        if token == END or self.context.token_count == 4:
            self.finish()


def nested_weight(ids: Ids) -> float:
    ends = [2, 4] if len(ids) > 2 else [2]
    return math.prod(0.25 if C in ids[:n] else 0.75 for n in ends)


REFERENCES["submodels"] = Reference(
    Nested, gather((text(ids), prob(ids) * nested_weight(ids)) for ids in texts(4))
)


# --- steps of one to three tokens


class Words(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "")
        self.words: list[str] = []

    async def step(self) -> None:
        word = ""
        for _ in range(2):
            word += await self.sample(self.context.next_token())
            if not await self.sample(self.context.mask_dist(VOWELS)):
                break
        self.words.append(word)
        self.score(-0.7 * len(word))
        if len(self.words) == 2:
            self.finish()


def words_exact() -> Iterator[tuple[str, float]]:
    """Walks over the tokens; `allowed` is what the last answer left possible for the next one."""

    def walk(ids: Ids, words: tuple[str, ...], word: str, n: int, allowed: Ids, p: float):
        if len(words) == 2:
            yield "|".join(words), p
            return
        law = table(1, ids)
        mass = sum(law[i] for i in allowed)
        for token in allowed:
            here, after = (*ids, token), word + VOCAB[token]
            q = p * law[token] / mass
            vowel = table(1, here)[A] + table(1, here)[AB]
            weighed = math.exp(-0.7 * len(after))
            if n == 1:
                yield from walk(here, words, after, 2, (A, AB), q * vowel)
                yield from walk(here, (*words, after), "", 1, (B, C, END), q * (1 - vowel) * weighed)
            else:
                yield from walk(here, (*words, after), "", 1, (A, AB), q * vowel * weighed)
                yield from walk(here, (*words, after), "", 1, (B, C, END), q * (1 - vowel) * weighed)

    yield from walk((), (), "", 1, tuple(range(V)), 1.0)


REFERENCES["words"] = Reference(Words, gather(words_exact()), key=lambda particle: "|".join(particle.words))


# --- temperatures: above one, below one, and zero


class Tempered(Ending):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "", temp=0.5)
        self.greedy = LMContext(OTHER, "", temp=0)
        self.hot = LMContext(OTHER, "", temp=3.0)

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        await self.observe(self.hot.next_token(), token)
        if self.context.token_count == 1:
            self.condition(await self.sample(self.greedy.next_token()) != token)
        self.end_with(token)


def tempered(name: int, ids: Ids, temperature: float) -> float:
    p = np.array(table(name, ids[:-1])) ** (1 / temperature)
    return float(p[ids[-1]] / p.sum())


REFERENCES["temperature"] = Reference(
    Tempered,
    gather(
        (
            text(ids),
            math.prod(
                tempered(1, ids[: n + 1], 0.5) * tempered(2, ids[: n + 1], 3.0) for n in range(len(ids))
            ),
        )
        for ids in texts(3)
        if ids[0] != int(np.argmax(table(2, ())))
    ),
)


# --- two prompts, one continuation


class Intersection(Ending):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "ab")
        self.second = LMContext(LM, "c")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        await self.observe(self.second.next_token(), token)
        self.end_with(token)


REFERENCES["two contexts"] = Reference(
    Intersection,
    gather((text(ids), prob(ids, start=(AB,)) * prob(ids, start=(C,))) for ids in texts(3)),
)


# --- latent numbers, and a final observation of the end


class Latent(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(SPARSE, "a")
        self.shape = ""

    async def step(self) -> None:
        coin = await self.sample(Bernoulli(0.3))
        which = await self.sample(
            LogCategorical([0.0, 1.0, -math.inf]), proposal=LogCategorical([0.0, 0.0, 0.0])
        )
        self.shape = f"{int(coin)}{which}"
        await self.observe(Geometric(0.5), which + 1)
        for _ in range(which + coin):
            await self.sample(self.context.next_token())
        await self.observe(self.context.next_token(), END)
        self.finish()


def latent_exact() -> Iterator[tuple[str, float]]:
    for coin, which in itertools.product((0, 1), repeat=2):
        prior = (0.3 if coin else 0.7) * math.exp(which) / (1 + math.e) * 0.5 ** (which + 1)
        for ids in itertools.product(range(V), repeat=which + coin):
            p = prior * prob((*ids, END), sparse_table, 3, start=(A,))
            yield f"{coin}{which}{text(ids)}.", p


REFERENCES["latent numbers"] = Reference(
    Latent, gather(latent_exact()), key=lambda particle: f"{particle.shape}{particle}"
)


# --- a proposal of one's own making, and several ends


class ManyEnds(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(OTHER, "")

    async def step(self) -> None:
        guess = TokenCategorical(OTHER, [0.5, 0.1, 0.0, 0.4, 1.0])
        token = await self.sample(self.context.next_token(), proposal=guess)
        if token in (C, END):
            self.finish()
        elif self.context.token_count == 3:
            self.condition(False)


def many_ends() -> Iterator[tuple[str, float]]:
    for n in (1, 2, 3):
        for ids in itertools.product((A, B, AB), repeat=n - 1):
            for end in (C, END):
                yield text((*ids, end)), prob((*ids, end), name=2)


REFERENCES["several ends"] = Reference(ManyEnds, gather(many_ends()))
