"""The language of models: calls, submodels, twists, death, mistakes, copies."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import math
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from tables import Gated, always, random_law, table_lm

from hfppl import (
    Bernoulli,
    CachedCausalLM,
    Distribution,
    LMContext,
    LogCategorical,
    Model,
    SubModel,
    smc_standard,
    smc_steer,
    submodel,
)
from hfppl.copying import share_parts, shared_memo
from hfppl.errors import ArgumentError, CopyError, ModelError, NoMassError, NumericalError
from hfppl.inference.turns import fork
from hfppl.random import Streams

LM = table_lm(random_law(11))


class OneStep(Model):
    """Runs `body(self)` once."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body
        self.context = LMContext(LM, "a")

    def immutable_properties(self) -> list[str]:
        return ["body"]

    async def step(self) -> None:
        await self.body(self)
        self.finish()


# --- classes that are not written as models


async def test_a_forgotten_await_is_told_when_the_step_raises_because_of_it() -> None:
    async def body(self: Model) -> None:
        token = self.sample(self.context.next_token())
        token.token_id  # noqa: B018  # a coroutine has none

    with pytest.raises(AttributeError, match="token_id") as caught:
        await smc_standard(OneStep(body), 3, seed=0)
    assert any("self.sample(...) was called without `await`" in note for note in caught.value.__notes__)


async def test_a_forgotten_await_in_the_start_hook_is_told() -> None:
    class Forgets(Model):
        async def start(self) -> None:
            self.observe(Bernoulli(0.5), True)

        async def step(self) -> None:
            self.finish()

    with pytest.raises(ModelError, match=r"self\.observe\(\.\.\.\).*Forgets\.start"):
        await smc_standard(Forgets(), 2, seed=0)


async def test_a_forgotten_await_in_a_submodel_is_told() -> None:
    @submodel
    async def forgetful(self: Any) -> None:
        self.sample(Bernoulli(0.5))

    with pytest.raises(ModelError, match="without `await`"):
        await smc_standard(OneStep(lambda self: self.call(forgetful())), 2, seed=0)


async def test_only_the_call_that_was_forgotten_is_named() -> None:
    async def body(self: Model) -> None:
        await self.sample(Bernoulli(0.5))
        self.intervene(self.context.next_token(), 0)
        await self.observe(Bernoulli(0.5), True)

    with pytest.raises(ModelError, match=r"^self\.intervene"):
        await smc_standard(OneStep(body), 2, seed=0)


async def test_calls_put_into_tasks_are_not_taken_for_forgotten() -> None:
    tasks = []

    async def body(self: Model) -> None:
        await asyncio.gather(*(self.sample(Bernoulli(0.5)) for _ in range(3)))
        tasks.append(asyncio.create_task(self.sample(Bernoulli(0.5))))  # begins after the step's last line

    particles = await smc_standard(OneStep(body), 2, seed=0)
    assert len(particles) == 2
    assert {await task for task in tasks} <= {True, False}


async def test_a_missing_super_init_is_told() -> None:
    class Missing(Model):
        def __init__(self) -> None:
            self.x = 1

        async def step(self) -> None:
            self.finish()

    with pytest.raises(ModelError, match=r"Missing.__init__ must call super\(\).__init__\(\)"):
        await smc_standard(Missing(), 2)
    with pytest.raises(ModelError, match=r"super\(\).__init__\(\)"):
        Missing().sample(Bernoulli(0.5))


async def test_a_step_that_is_not_async_is_told() -> None:
    class Plain(Model):
        def step(self) -> None:
            self.finish()

    class Generator(Model):
        def step(self) -> Any:
            yield

    class AsyncGenerator(Model):
        async def step(self) -> Any:
            yield

    class Absent(Model):
        pass

    for kind, words in (
        (Plain, "must be an `async def`"),
        (Generator, "not a generator"),
        (AsyncGenerator, "must return, not `yield`"),
        (Absent, "has no `async def step"),
    ):
        with pytest.raises(ModelError, match=words):
            await smc_standard(kind(), 2)


@pytest.mark.parametrize("driver", [smc_standard, lambda model, n: smc_steer(model, n, 2)])
async def test_a_class_instead_of_a_model_is_told(driver: Any) -> None:
    with pytest.raises(ModelError, match=r"pass OneStep\(\.\.\.\)"):
        await driver(OneStep, 2)
    with pytest.raises(ModelError, match=r"subclass hfppl\.Model"):
        await driver("a model", 2)


# --- submodels


@submodel
async def drawn(self: Any, context: LMContext, n: int) -> list[int]:
    """Draws n tokens."""
    return [int(await self.sample(context.next_token())) for _ in range(n)]


@submodel
async def drawn_in_two_parts(self: Any, context: LMContext) -> list[int]:
    left = await self.call(drawn(context, 1))
    self.score(-0.25)
    return left + await self.call(drawn(context, n=2))


async def test_submodels_nest_and_count_towards_the_particle_that_calls() -> None:
    async def body(self: Model) -> None:
        self.drawn = await self.call(drawn_in_two_parts(self.context))

    assert (drawn.__name__, drawn.__doc__) == ("drawn", "Draws n tokens.")
    for particle in await smc_standard(OneStep(body), 6, seed=0):
        assert particle.drawn == particle.context.tokens[1:]
        assert particle.weight == -0.25


async def test_one_submodel_object_serves_all_particles_at_once() -> None:
    class Twice(SubModel):
        async def forward(self) -> list[int]:
            ids = []
            for _ in range(2):
                await asyncio.sleep(0)  # others run in between
                ids.append(int(await self.sample(self.parent.context.next_token())))
            self.score(-float(ids[0]))
            return ids

    shared = Twice()

    async def body(self: Model) -> None:
        self.ids = await self.call(shared)

    particles = await smc_standard(OneStep(body), 20, ess_threshold=0, seed=3)
    assert len({tuple(p.ids) for p in particles}) > 4
    for particle in particles:
        assert particle.ids == particle.context.tokens[1:]
        assert particle.weight == -particle.ids[0]


async def test_calls_gathered_in_one_step_all_count() -> None:
    async def body(self: Model) -> None:
        contexts = [LMContext(LM, "a"), LMContext(LM, "b")]
        await asyncio.gather(*(self.call(drawn_in_two_parts(context)) for context in contexts))

    (particle,) = await smc_standard(OneStep(body), 1, seed=0)
    assert particle.weight == -0.5


async def test_a_submodel_has_a_parent_while_it_is_called_and_no_longer() -> None:
    piece = drawn(LMContext(LM, "a"), 1)
    await Model().call(piece)
    with pytest.raises(ModelError, match="inside a model"):
        _ = piece.parent


async def test_call_takes_submodels_only_and_these_run_in_models_only() -> None:
    async def body(self: Model) -> None:
        await self.call(drawn)  # the decorated name itself, not a submodel made with it

    with pytest.raises(ArgumentError, match="takes a submodel"):
        await smc_standard(OneStep(body), 1)
    with pytest.raises(ModelError, match="inside a model"):
        await drawn(LMContext(LM, "a"), 1).forward()
    with pytest.raises(ModelError, match="has no `async def forward"):
        await Model().call(SubModel())


# --- twists


class TwistTwice(Model):
    def __init__(self, first: float, second: float, early: bool) -> None:
        super().__init__()
        self.twists = [first, second]
        self.early = early
        self.n = 0

    async def step(self) -> None:
        assert self.weight == pytest.approx(-0.5 * self.n)
        self.n += 1
        self.score(-0.5)
        self.twist(self.twists[0])
        self.twist(self.twists[1])
        if self.early or self.n == 3:
            self.finish()
            assert self.weight == pytest.approx(-0.5 * self.n)


@pytest.mark.parametrize("early", [True, False])
async def test_finite_twists_cancel(early: bool) -> None:
    particles = await smc_standard(TwistTwice(1.5, -0.2, early), 4, seed=0)
    assert particles.log_weights == pytest.approx(np.full(4, -0.5 if early else -1.5))


async def test_twists_cancel_when_particles_are_stopped_short_or_resampled() -> None:
    class Twisted(Model):
        async def step(self) -> None:
            self.twist(3.0 if await self.sample(Bernoulli(0.5)) else -3.0)

    stopped = await smc_standard(Twisted(), 8, ess_threshold=0, seed=0, max_steps=2)
    assert stopped.log_weights == pytest.approx(np.zeros(8))

    class TwistedOnce(Twisted):
        def __init__(self) -> None:
            super().__init__()
            self.twisted = False

        async def step(self) -> None:
            if not self.twisted:
                await super().step()
            self.twisted = True

    resampled = await smc_standard(TwistedOnce(), 64, ess_threshold=1, seed=0, max_steps=2)
    # All weighed the mean when they were chosen, so each now weighs the mean without its own twist.
    mean = resampled.record.steps[0].log_mean_weight
    assert set(np.round(resampled.log_weights - mean, 9)) <= {-3.0, 3.0}


async def test_a_twist_of_minus_infinity_is_death() -> None:
    class Hopeless(Model):
        async def step(self) -> None:
            self.twist(2.0)
            self.twist(-math.inf)
            assert self.finished
            self.twist(1.0)

    particles = await smc_standard(Hopeless(), 3, seed=0)
    assert particles.n_dead == 3
    assert len(particles.record.steps) == 1


def test_untwist_and_reset_outside_inference() -> None:
    model = Model()
    model.score(-1.0)
    model.twist(0.5)
    model.twist(0.25)
    assert model.weight == -0.25
    model.untwist()
    model.untwist()
    assert model.weight == -1.0
    model.twist(1.0)
    model.finish()
    assert (model.weight, model.done_stepping()) == (-1.0, True)
    model.reset()
    model.untwist()
    assert (model.weight, model.finished) == (0.0, False)


# --- the four calls


async def test_a_value_that_the_model_cannot_draw_kills_whatever_the_proposal_says() -> None:
    async def body(self: Model) -> None:
        self.x = await self.sample(Bernoulli(0.0), proposal=Bernoulli(0.5))

    particles = await smc_standard(OneStep(body), 20, ess_threshold=0, seed=0)
    assert {(p.x, p.weight) for p in particles} == {(True, -math.inf), (False, math.log(2))}


async def test_intervening_weighs_nothing_unless_nothing_is_left() -> None:
    async def body(self: Model) -> None:
        assert await self.intervene(self.context.mask_dist({0}), True) is True
        assert await self.intervene(self.context.next_token(), 1) == 1
        assert await self.intervene(Bernoulli(0.0), True) is True
        assert self.weight == 0
        await self.intervene(self.context.mask_dist(()), True)

    (particle,) = await smc_standard(OneStep(body), 1, seed=0)
    assert particle.weight == -math.inf
    assert particle.context.tokens == [0, 1]


async def test_the_start_hook_runs_once_in_each_particle_and_never_on_a_copy() -> None:
    starts = 0

    class Starts(Model):
        async def start(self) -> None:
            nonlocal starts
            starts += 1
            self.context = LMContext(LM, "a")

        async def step(self) -> None:
            token = await self.sample(self.context.next_token())
            self.score(-float(token.token_id))
            if self.context.token_count == 3:
                self.finish()

    await smc_standard(Starts(), 7, ess_threshold=1, seed=0)
    assert starts == 7
    await smc_steer(Starts(), 5, 3, seed=0)
    assert starts == 12


# --- death in the middle of a step


@pytest.mark.parametrize(
    "kill",
    [
        lambda self: self.condition(False),
        lambda self: self.score(-math.inf),
        lambda self: self.twist(-math.inf),
        lambda self: setattr(self, "weight", -math.inf),
    ],
)
async def test_what_follows_death_in_a_step_still_runs_and_the_particle_is_finished(kill: Any) -> None:
    class Dies(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(LM, "a")
            self.notes: list[str] = []

        async def step(self) -> None:
            kill(self)
            for _ in range(3):
                await self.sample(self.context.next_token())
            await self.observe(self.context.next_token(), 0)
            await self.sample(self.context.next_token(), proposal=LMContext(LM, "b").next_token())
            self.score(5.0)
            self.twist(1.0)
            self.notes.append("put in order")

    before = LM.stats().tokens_evaluated
    particles = await smc_standard(Dies(), 4, seed=0)
    assert all(p.finished and p.weight == -math.inf for p in particles)
    assert all(p.notes == ["put in order"] for p in particles)
    assert LM.stats().tokens_evaluated == before


async def endless_draws(self: Any) -> None:
    while True:
        await self.sample(self.context.next_token())


async def endless_waiting_for_a_token_that_cannot_come(self: Any) -> None:
    while self.context.token_count < 3:
        await self.observe(self.context.next_token(), 1)


async def endless_questions(self: Any) -> None:
    while True:
        await self.context.logprobs()


async def endless_coins(self: Any) -> None:
    while not await self.sample(Bernoulli(0.0)):
        pass


@pytest.mark.parametrize(
    "forever",
    [endless_draws, endless_waiting_for_a_token_that_cannot_come, endless_questions, endless_coins],
)
async def test_a_loop_that_death_has_made_endless_is_ended(forever: Any) -> None:
    async def body(self: Any) -> None:
        await self.observe(self.context.mask_dist({0}), True)
        self.condition(await self.sample(Bernoulli(0.5)))
        if self.weight == -math.inf:
            await forever(self)

    particles = await smc_standard(OneStep(body), 8, ess_threshold=0, seed=1)
    assert 0 < particles.n_dead < 8
    assert particles.n_unfinished == 0


async def test_loops_that_wait_for_an_end_or_a_word_come_to_one_after_death() -> None:
    async def body(self: Any) -> None:
        self.condition(False)
        while await self.sample(self.context.next_token()) != 3:
            pass
        while not await self.sample(self.context.mask_dist({0})):
            await self.sample(self.context.next_token())
        self.reached = True

    particles = await smc_standard(OneStep(body), 8, seed=1)
    assert all(p.reached for p in particles)


async def test_a_draw_with_nothing_to_draw_kills_the_particle() -> None:
    async def body(self: Any) -> None:
        await self.sample(LogCategorical([-math.inf, -math.inf]))

    particles = await smc_standard(OneStep(body), 3, seed=0)
    assert particles.n_dead == 3
    with pytest.raises(NoMassError):
        await Model().sample(LogCategorical([-math.inf]))


# --- numbers that are none


@pytest.mark.parametrize("value", [math.nan, math.inf, np.float32("nan")])
@pytest.mark.parametrize("call", ["score", "twist"])
async def test_a_factor_that_is_no_number_is_told_with_its_particle_step_and_call(
    call: str, value: float
) -> None:
    class Wrong(Model):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        async def step(self) -> None:
            self.n += 1
            if self.n == 2:
                getattr(self, call)(value)

    with pytest.raises(NumericalError, match=rf"Wrong\.{call}\(\) \(particle 0, step 2\) got (nan|inf)"):
        await smc_standard(Wrong(), 3, seed=0)


async def test_a_weight_or_a_log_probability_that_is_no_number_is_told() -> None:
    class Broken(Distribution[int]):
        async def sample(self) -> tuple[int, float]:
            return 0, 0.0

        async def log_prob(self, x: int) -> float:
            return math.nan

    async def assigns(self: Any) -> None:
        self.weight = math.inf

    async def overflows(self: Any) -> None:
        self.score(1e308)
        self.score(1e308)

    async def observes(self: Any) -> None:
        await self.observe(Broken(), 0)

    async def proposes(self: Any) -> None:
        await self.sample(Broken(), proposal=Broken())

    for body in (assigns, overflows, observes, proposes):
        with pytest.raises(NumericalError) as caught:
            await smc_standard(OneStep(body), 2, seed=0)
        told = f"{caught.value} {caught.value.__notes__}"
        assert "particle 0, step 1" in told
    with pytest.raises(NumericalError, match=r"log_prob of .*Broken"):
        await smc_standard(OneStep(observes), 2, seed=0)


async def test_factors_may_be_numpy_scalars_or_arrays_of_one() -> None:
    model = Model()
    model.score(np.float32(-0.5))
    model.score(np.array(-0.25))
    model.condition(np.bool_(True))
    assert (model.weight, type(model.weight)) == (-0.75, float)


# --- copies


async def test_what_a_particle_owns_is_copied_and_what_it_names_is_shared() -> None:
    class Owner(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(LM, "a")
            self.mine = {"list": [1, [2]]}
            self.table = np.zeros(3)
            self.ours = {"list": [1, [2]]}
            self.same = self.mine["list"]
            self.mask = LM.masks.ALL_TOKENS

        def immutable_properties(self) -> set[str]:
            return {"ours"}

    model = Owner()
    twin = copy.deepcopy(model)
    twin.mine["list"][1].append(3)
    twin.table[0] = 1
    assert (model.mine, model.table[0]) == ({"list": [1, [2]]}, 0)
    assert twin.same is twin.mine["list"]
    assert twin.ours is model.ours
    assert twin.mask is model.mask
    assert twin.context.lm is LM
    assert twin.context is not model.context
    assert copy.copy(model).mine is not model.mine


async def test_slots_are_copied_too() -> None:
    class Slotted(Model):
        __slots__ = ("left", "unset")

        def __init__(self) -> None:
            super().__init__()
            self.left = [[1]]

    model = Slotted()
    twin = copy.deepcopy(model)
    twin.left[0].append(2)
    assert (model.left, twin.left) == ([[1]], [[1, 2]])
    assert not hasattr(twin, "unset")


@pytest.mark.parametrize(
    "make",
    [threading.Lock, lambda: (i for i in range(3)), lambda: [threading.Lock()]],
)
async def test_what_cannot_be_copied_is_named_together_with_the_ways_out(make: Any) -> None:
    held = make()

    async def body(self: Model) -> None:
        pass

    model = OneStep(body)
    model.held = held
    with pytest.raises(CopyError, match=r"OneStep\.held .*cannot be copied.*immutable_properties"):
        await smc_standard(model, 2, seed=0)


async def test_a_copying_method_of_ones_own_is_used() -> None:
    class Handle:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __deepcopy__(self, memo: dict[int, Any]) -> Handle:
            return Handle()

    async def body(self: Model) -> None:
        pass

    model = OneStep(body)
    model.handle = Handle()
    particles = await smc_standard(model, 2, seed=0)
    assert len({id(p.handle) for p in (*particles, model)}) == 3


@pytest.mark.parametrize("kind", ["numpy", "random"])
async def test_generators_kept_in_attributes_do_not_replay_each_other(kind: str) -> None:
    class Keeps(Model):
        def __init__(self) -> None:
            super().__init__()
            self.source = np.random.default_rng(0) if kind == "numpy" else random.Random(0)
            self.draws: list[float] = []

        async def step(self) -> None:
            self.draws.append(self.source.random())
            if len(self.draws) == 1:
                self.score(math.log(self.draws[0]))
            else:
                self.finish()

    runs = [await smc_standard(Keeps(), 12, ess_threshold=1, seed=4) for _ in range(2)]
    assert [p.draws for p in runs[0]] == [p.draws for p in runs[1]]
    assert len({p.draws[0] for p in runs[0]}) < 12  # some are copies
    assert len({p.draws[1] for p in runs[0]}) == 12


async def test_a_copy_that_is_no_copy_is_told() -> None:
    class Same(Model):
        def __deepcopy__(self, memo: dict[int, Any]) -> Same:
            return self

    with pytest.raises(CopyError, match="the same object"):
        await smc_standard(Same(), 2)


# --- when a particle fails


class Failing(Model):
    """Particle `who` raises in step 3."""

    def __init__(self, lm: Any, error: BaseException | None) -> None:
        super().__init__()
        self.context = LMContext(lm, "a")
        self.error = error
        self.cancelled: list[bool] = []

    def immutable_properties(self) -> list[str]:
        return ["error", "cancelled"]

    async def step(self) -> None:
        self.score(-0.5)
        self.twist(0.25)
        if self.context.token_count == 2 and self.context.tokens[1] == 0 and self.error is not None:
            raise self.error
        try:
            await self.sample(self.context.next_token())
        except asyncio.CancelledError:
            self.cancelled.append(True)
            raise
        if self.context.token_count == 4:
            self.finish()


@pytest.mark.parametrize("driver", [smc_standard, lambda model, n, **k: smc_steer(model, n, 1, **k)])
async def test_ones_own_exception_comes_unchanged_with_the_last_whole_population(driver: Any) -> None:
    class OwnError(Exception):
        pass

    error = OwnError("mine")
    model = Failing(table_lm(always(0.5, 0.5, 0, 0)), error)
    with pytest.raises(OwnError, match=r"^mine\b") as caught:
        await driver(model, 6, seed=0)
    assert caught.value is error
    assert any("raised by particle" in note and "step 3" in note for note in error.__notes__)
    assert len(error.particles) == 6
    assert {p.context.token_count for p in error.particles} == {2}
    assert error.particles.log_weights == pytest.approx(np.full(6, -1.0))  # without twists
    assert error.particles.n_unfinished == 6
    assert model.cancelled
    assert len(asyncio.all_tasks()) == 1


async def test_siblings_are_cancelled_even_while_a_forward_runs_and_the_lm_is_usable_at_once() -> None:
    gated = Gated(always(0.5, 0.5, 0, 0))
    lm = table_lm(gated)
    outcome: list[str] = []

    class OneFails(Model):
        def __init__(self, fails: bool) -> None:
            super().__init__()
            self.fails = fails
            self.context = LMContext(lm, "a")

        async def step(self) -> None:
            if self.fails and not outcome:
                outcome.append("failing")
                await gated.reached()
                raise KeyError("mine")
            try:
                await self.sample(self.context.next_token())
            except asyncio.CancelledError:
                outcome.append("cancelled")
                raise
            self.finish()

    with pytest.raises(KeyError):
        await smc_standard(OneFails(True), 3, seed=0)
    assert outcome == ["failing", "cancelled", "cancelled"]
    gated.gate.set()
    particles = await smc_standard(OneFails(False), 3, seed=0)
    assert particles.n_dead == particles.n_unfinished == 0


async def test_an_error_in_the_start_hook_names_the_particle() -> None:
    class BadStart(Model):
        async def start(self) -> None:
            raise LookupError("mine")

    with pytest.raises(LookupError) as caught:
        await smc_standard(BadStart(), 2, seed=0)
    assert any("particle 0, the start hook" in note for note in caught.value.__notes__)


def test_the_text_of_a_model_is_that_of_its_first_context() -> None:
    class Plain(Model):
        pass

    model = Plain()
    assert str(model) == "Plain"
    model.other = 3
    model.context = LMContext(LM, "ab", show_prompt=True)
    model.q = LMContext(LM, "b", show_prompt=True)
    assert (str(model), model.string_for_serialization()) == ("ab", "ab")


def test_what_belongs_to_a_language_model_is_shared_by_copies() -> None:
    lm = table_lm(random_law(5))

    class Holds(Model):
        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = lm.tokenizer
            self.words = lm.vocab
            self.nested = {"bytes": lm.byte_vocab}
            self.ids = set(range(50))

    holder = Holds()
    child = fork(holder, Streams(0), 1, 0)
    assert child.tokenizer is lm.tokenizer
    assert child.words is lm.vocab
    assert child.nested["bytes"] is lm.byte_vocab
    assert child.ids == holder.ids
    assert child.ids is not holder.ids


def test_what_is_shared_is_let_go_with_its_last_language_model() -> None:
    class Owner:
        pass

    tokenizer, owners = Owner(), [Owner(), Owner()]
    gc.collect()  # what earlier tests have left
    n_before = len(shared_memo())
    for owner in owners:
        share_parts(owner, tokenizer)
    del owner
    assert shared_memo()[id(tokenizer)] is tokenizer
    owners.pop()
    assert id(tokenizer) in shared_memo()
    owners.pop()
    assert len(shared_memo()) == n_before


def test_a_language_model_whose_function_knows_it_is_let_go() -> None:
    def made() -> weakref.ref[CachedCausalLM]:
        known: list[CachedCausalLM] = []
        lm = CachedCausalLM.from_function(["a", "b"], lambda ids: [0.0] * known[0].vocab_size)
        known.append(lm)
        assert {id(lm.tokenizer), id(lm.byte_vocab), id(lm.vocab)} <= set(shared_memo())
        return weakref.ref(lm)

    gone = made()
    gc.collect()
    assert gone() is None


async def test_an_exception_that_takes_no_attributes_arrives_as_it_is() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):  # noqa: N818
        code: int

    class Fails(Model):
        async def step(self) -> None:
            raise Frozen(7)

    with pytest.raises(Frozen) as caught:
        await smc_standard(Fails(), 2, seed=0)
    assert caught.value.code == 7


async def test_an_exception_in_the_start_hook_has_a_population_too() -> None:
    class Fails(Model):
        async def start(self) -> None:
            raise KeyError("no")

    with pytest.raises(KeyError) as caught:
        await smc_standard(Fails(), 2, seed=0)
    assert list(caught.value.particles) == []


async def test_older_subclasses_of_submodels() -> None:
    class Old(SubModel):
        def __init__(self) -> None:
            super().__init__()
            self.parent = None

        async def forward(self) -> str:
            self.score(-1.0)
            return type(self.parent).__name__

    class Uses(Model):
        async def step(self) -> None:
            self.said = await Old().run_with_parent(self)
            self.finish()

    particles = await smc_standard(Uses(), 1, seed=0)
    assert particles[0].said == "Uses"
    assert particles.log_weights == pytest.approx(-1.0)
