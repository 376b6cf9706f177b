"""Questions asked at the same time are answered together, and every one of them is answered."""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import math
import threading
from typing import Any

import numpy as np
import pytest
from tables import ABC, Counted, Gated, always, random_law, sizes, table_lm

from hfppl import CachedCausalLM, LMContext, Model, smc_standard, smc_steer
from hfppl.errors import ArgumentError, ContextLengthError, HfpplError, NumericalError, QueriesResetError
from hfppl.llms.function import FunctionBackend, LongestMatchTokenizer
from hfppl.llms.prefix import Prefix
from hfppl.tokens import Vocabulary

LAW = random_law(5)


def rows(*prefixes: tuple[int, ...]) -> list[Any]:
    return [pytest.approx(np.log(LAW(prefix))) for prefix in prefixes]


class Walk(Model):
    """Draws three tokens, and prefers some."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.context = LMContext(lm, "a")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        self.score(-0.7 * token.token_id)
        if self.context.token_count == 3:
            self.finish()


def shown(particles: Any) -> list[tuple[str, float]]:
    return [(str(p), p.weight) for p in particles]


# --- joining


@pytest.mark.parametrize("way", ["at once", "yielding", "gathering", "in tasks"])
async def test_particles_join_one_batch_however_they_come_to_ask(way: str) -> None:
    lm = table_lm(LAW)
    number = itertools.count()

    class Asks(Model):
        async def start(self) -> None:
            self.number = next(number)
            self.contexts = [LMContext(lm, [side, self.number % 3, self.number // 3]) for side in (0, 1)]

        async def step(self) -> None:
            left, right = (self.sample(context.next_token()) for context in self.contexts)
            if way == "at once":
                await left
                await right
            elif way == "yielding":
                for _ in range(3 * (self.number % 2)):
                    await asyncio.sleep(0)
                await left
                for _ in range(3 * (self.number % 3)):
                    await asyncio.sleep(0)
                await right
            elif way == "gathering":
                await asyncio.gather(left, right)
            else:
                task = asyncio.create_task(left)
                await asyncio.gather(task, asyncio.create_task(right))
            self.finish()

    await smc_standard(Asks(), 9, seed=0)
    assert sizes(lm) == ([9, 9] if way in ("at once", "yielding") else [18])


async def test_particles_that_stand_in_different_places_go_together() -> None:
    lm = table_lm(always(0.4, 0.3, 0.2, 0.1))
    await smc_standard(Walk(lm), 40, ess_threshold=0, seed=0)
    assert lm.stats().forward_passes == 3
    assert sizes(lm)[1] == 4  # every first token was drawn by somebody


async def test_identical_questions_are_evaluated_once() -> None:
    counted = Counted(LAW)
    lm = table_lm(counted)
    answers = await asyncio.gather(*(lm.next_token_logprobs([0, i % 2]) for i in range(10)))
    assert [list(a) for a in answers] == rows((0, 0), (0, 1)) * 5
    assert sorted(counted.asked) == [(0, 0), (0, 1)]
    await lm.next_token_logprobs([0, 1])
    assert len(counted.asked) == 2
    stats = lm.stats()
    assert (stats.requests, stats.row_hits, stats.tokens_evaluated) == (11, 1, 2)


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1] * 7), (3, [1, 3, 3]), (7, [7]), (50, [7]), (None, [7])]
)
async def test_a_batch_is_never_larger_than_its_size_and_a_partial_one_goes_too(
    size: int | None, expected: list[int]
) -> None:
    lm = table_lm(LAW)
    lm.batch_size = size
    prefixes = [(0, i % 4, i // 4) for i in range(7)]
    answers = await asyncio.gather(*map(lm.next_token_logprobs, prefixes))
    assert [list(a) for a in answers] == rows(*prefixes)
    assert sizes(lm) == expected


async def test_fewer_live_particles_than_a_batch_holds_do_not_wait_for_more() -> None:
    lm = table_lm(always(0.3, 0.3, 0.1, 0.3), batch_size=4)

    class Ends(Walk):
        async def step(self) -> None:
            if await self.sample(self.context.next_token()) == 3 or self.context.token_count > 8:
                self.finish()

    particles = await smc_standard(Ends(lm), 5, ess_threshold=0, seed=2)
    assert len({p.context.token_count for p in particles}) > 2


@pytest.mark.parametrize("size", [0, -3, 2.5, "4", True])
def test_a_batch_size_that_is_none_is_refused(size: Any) -> None:
    lm = table_lm(LAW, batch_size=3)
    with pytest.raises(ArgumentError, match="batch_size"):
        lm.batch_size = size
    with pytest.raises(ArgumentError, match="batch_size"):
        table_lm(LAW, batch_size=size)
    assert lm.batch_size == 3


# --- errors


class Flaky:
    """Raises at chosen questions."""

    def __init__(self, error: BaseException, *bad: tuple[int, ...]) -> None:
        self.error = error
        self.bad = bad

    def __call__(self, prefix: tuple[int, ...]) -> Any:
        if prefix in self.bad:
            raise self.error
        return LAW(prefix)


class RefusalError(Exception):
    """An exception that cannot be made from its own arguments."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.reason = reason


def failing_whole(lm: CachedCausalLM) -> CachedCausalLM:
    """A language model that fails a whole batch where a function fails for one sequence of it."""
    evaluate = lm.backend.evaluate

    def evaluate_or_raise(prefixes: Any) -> Any:
        rows = evaluate(prefixes)
        for row in rows:
            if isinstance(row, Exception):
                raise row
        return rows

    lm.backend.evaluate = evaluate_or_raise  # type: ignore[method-assign]
    return lm


@pytest.mark.parametrize("error", [OSError(5, "broken"), RefusalError(3, reason="no"), KeyError("x")])
async def test_an_error_reaches_all_who_wait_for_its_batch_and_nobody_else(error: Exception) -> None:
    lm = failing_whole(table_lm(Flaky(error, (0, 1)), batch_size=3))
    prefixes = [(0, 0), (0, 1), (0, 1), (0, 2), (0, 3), (1, 0)]
    answers = await asyncio.gather(*map(lm.next_token_logprobs, prefixes), return_exceptions=True)
    assert [list(answer) for answer in answers[4:]] == rows(*prefixes[4:])
    for i in range(4):
        assert type(answers[i]) is type(error)
        assert str(answers[i]) == str(error)
        assert answers[i].__traceback__ is not None
    healthy = await asyncio.gather(*map(lm.next_token_logprobs, [(0, 0), (0, 2)]))
    assert [list(a) for a in healthy] == rows((0, 0), (0, 2))


async def test_a_stop_iteration_of_the_model_reaches_its_waiters_as_an_error() -> None:
    lm = failing_whole(table_lm(Flaky(StopIteration(), (0,))))
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await lm.next_token_logprobs([0])
    assert isinstance(caught.value.__cause__, StopIteration)
    assert [list(await lm.next_token_logprobs([1]))] == rows((1,))


async def test_runs_that_fail_by_one_batch_each_get_an_error_of_their_own() -> None:
    lm = failing_whole(table_lm(Flaky(OSError("broken"), (0,), (1,), (2,), (0, 0))))

    class Start(Walk):
        def __init__(self, prompt: str) -> None:
            super().__init__(lm)
            self.context = LMContext(lm, prompt)

    errors = await asyncio.gather(
        smc_standard(Start("a"), 2, seed=0),
        smc_standard(Start("b"), 3, seed=0),
        smc_steer(Start("a"), 4, 1, seed=0),
        return_exceptions=True,
    )
    assert [type(error) for error in errors] == [OSError] * 3
    assert [len(error.particles) for error in errors] == [2, 3, 4]
    assert [len(error.__notes__) for error in errors] == [1, 1, 1]


async def test_the_second_of_three_forwards_fails_and_the_lm_is_usable_at_once() -> None:
    calls = 0

    def fails_once(prefix: tuple[int, ...]) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")
        return LAW(prefix)

    lm = failing_whole(table_lm(fails_once))
    await lm.next_token_logprobs([3])
    failed = await asyncio.gather(*(lm.next_token_logprobs([i]) for i in range(3)), return_exceptions=True)
    assert [str(error) for error in failed] == ["out of memory"] * 3
    assert shown(await smc_standard(Walk(lm), 5, seed=0)) == shown(
        await smc_standard(Walk(table_lm(LAW)), 5, seed=0)
    )


def test_the_lm_works_from_a_new_event_loop_after_a_failure_in_the_old() -> None:
    lm = table_lm(Flaky(OSError("broken"), (0,)))
    with pytest.raises(OSError, match="broken"):
        asyncio.run(lm.next_token_logprobs([0]))
    with pytest.raises(OSError, match="broken"):
        lm.next_token_logprobs_unbatched([0])
    assert [list(asyncio.run(lm.next_token_logprobs([1])))] == rows((1,))
    assert [list(lm.next_token_logprobs_unbatched([2]))] == rows((2,))


async def test_a_row_that_is_no_number_fails_only_who_asked_for_it_and_tells_where() -> None:
    lm = CachedCausalLM.from_function(
        ABC, lambda ids: [0.0, math.nan if ids == [0, 1] else 0.0, 0.0, 0.0], [3]
    )
    good, bad, twin = await asyncio.gather(
        *map(lm.next_token_logprobs, [(0, 0), (0, 1), (0, 1)]), return_exceptions=True
    )
    assert np.exp(good) == pytest.approx([0.25] * 4)
    for error in (bad, twin):
        assert isinstance(error, NumericalError)
        assert "[0, 1]" in str(error)
        assert "float64" in str(error)
    assert sizes(lm) == [2]


async def test_a_row_of_the_wrong_length_is_told() -> None:
    lm = CachedCausalLM.from_function(ABC, lambda ids: [0.0, 0.0, 0.0], [3])
    with pytest.raises(ArgumentError, match=r"4 numbers.*\(3,\)"):
        await lm.next_token_logprobs([0])


def short_lm(limit: int) -> CachedCausalLM:
    """One that reads `limit` tokens and no more."""
    backend = FunctionBackend(lambda ids: np.log(LAW(tuple(ids))), len(ABC))
    backend.max_context = limit
    entries = [entry.encode() for entry in ABC]
    vocabulary = Vocabulary(entries, special_ids=[3])
    return CachedCausalLM._make(backend, LongestMatchTokenizer(entries, [3]), vocabulary, [3], None, None)


async def test_a_context_too_long_fails_alone_and_before_the_forward() -> None:
    lm = short_lm(3)
    first, long, last = await asyncio.gather(
        *map(lm.next_token_logprobs, [(0, 0), (0, 0, 0, 0), (0, 0, 0)]), return_exceptions=True
    )
    assert [list(first), list(last)] == rows((0, 0), (0, 0, 0))
    assert isinstance(long, ContextLengthError)
    assert "4 tokens" in str(long)
    assert "the 3 that" in str(long)
    assert sizes(lm) == [2]
    with pytest.raises(ContextLengthError):
        LMContext(lm, "aaaa")
    context = LMContext(lm, "aaa")
    await context.next_token().sample()  # the last token is not read
    with pytest.raises(ContextLengthError):
        await context.next_token().sample()
    assert context.token_count == 1


# --- cancellation, and life during a forward


async def test_one_cancelled_waiter_leaves_the_others_of_its_question_waiting() -> None:
    gated = Gated(LAW)
    lm = table_lm(gated)
    tasks = [asyncio.create_task(lm.next_token_logprobs([i // 2])) for i in range(4)]
    await gated.reached()
    tasks[1].cancel()
    gated.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], asyncio.CancelledError)
    assert [list(outcomes[i]) for i in (0, 2, 3)] == rows((0,), (1,), (1,))


async def test_what_nobody_waits_for_any_more_is_not_evaluated() -> None:
    counted = Counted(LAW)
    gated = Gated(counted)
    lm = table_lm(gated)
    first = asyncio.create_task(lm.next_token_logprobs([0]))
    await gated.reached()
    second = asyncio.create_task(lm.next_token_logprobs([1]))
    third = asyncio.create_task(lm.next_token_logprobs([2]))
    await asyncio.sleep(0)
    second.cancel()
    gated.gate.set()
    await asyncio.gather(first, third)
    assert counted.asked == [(0,), (2,)]


async def test_a_timeout_of_the_driver_during_a_forward_frees_everything() -> None:
    gated = Gated(LAW)
    lm = table_lm(gated)
    loop = asyncio.get_running_loop()

    async def run_until(deadline: asyncio.Timeout) -> None:
        async with deadline:
            await smc_standard(Walk(lm), 5, seed=0)

    deadline = asyncio.timeout(None)
    run = asyncio.create_task(run_until(deadline))
    await gated.reached()
    deadline.reschedule(loop.time())
    with pytest.raises(TimeoutError):
        await run
    assert len(asyncio.all_tasks()) == 1
    gated.gate.set()
    expected = shown(await smc_standard(Walk(table_lm(LAW)), 5, seed=0))
    assert shown(await smc_standard(Walk(lm), 5, seed=0)) == expected


def test_a_loop_closed_during_a_forward_does_not_disturb_the_next_loop() -> None:
    gated = Gated(LAW)
    lm = table_lm(gated)

    async def leaves() -> None:
        task = asyncio.create_task(lm.next_token_logprobs([0]))
        await gated.reached()
        assert not task.done()  # and the loop is closed over it

    asyncio.run(leaves())
    gated.gate.set()
    assert [list(asyncio.run(lm.next_token_logprobs([0])))] == rows((0,))
    gc.collect()


async def test_the_event_loop_lives_while_a_forward_runs() -> None:
    gated = Gated(LAW)
    lm = table_lm(gated)
    beats = 0

    async def heart() -> None:
        nonlocal beats
        await gated.reached()
        for _ in range(50):
            await asyncio.sleep(0)
            beats += 1
        gated.gate.set()

    heartbeat = asyncio.create_task(heart())
    await smc_standard(Walk(lm), 3, seed=0)  # ends only if the heart beats meanwhile
    await heartbeat
    assert beats == 50


# --- sharing one language model


async def test_runs_at_once_give_what_each_gives_alone() -> None:
    alone = [shown(await smc_standard(Walk(table_lm(LAW)), 6, seed=i)) for i in range(4)]
    lm = table_lm(LAW, batch_size=3)
    together = await asyncio.gather(*(smc_standard(Walk(lm), 6, seed=i) for i in range(4)))
    assert [shown(particles) for particles in together] == alone


def test_threads_with_event_loops_of_their_own_share_a_language_model() -> None:
    alone = [shown(asyncio.run(smc_standard(Walk(table_lm(LAW)), 6, seed=i))) for i in range(4)]
    counted = Counted(LAW)
    lm = table_lm(counted)
    results: dict[int, Any] = {}

    def work(i: int) -> None:
        results[i] = shown(asyncio.run(smc_standard(Walk(lm), 6, seed=i)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(4)] == alone
    assert len(counted.asked) == len(set(counted.asked))


async def test_waiting_questions_are_dropped_on_demand_and_those_under_way_are_not() -> None:
    gated = Gated(LAW)
    lm = table_lm(gated)
    under_way = asyncio.create_task(lm.next_token_logprobs([0]))
    await gated.reached()
    waiting = [asyncio.create_task(lm.next_token_logprobs([i])) for i in (1, 1, 2)]
    await asyncio.sleep(0)
    lm.reset_async_queries()
    for task in waiting:
        with pytest.raises(QueriesResetError, match="ask again"):
            await task
    gated.gate.set()
    assert [list(await under_way), list(await lm.next_token_logprobs([1]))] == rows((0,), (1,))


async def test_blocking_questions_are_answered_inside_a_running_loop() -> None:
    lm = table_lm(LAW)
    waiting = asyncio.create_task(lm.next_token_logprobs([0]))
    await asyncio.sleep(0)
    assert [list(lm.next_token_logprobs_unbatched([1]))] == rows((1,))
    assert [list(await waiting)] == rows((0,))
    assert lm.next_token_logits_unbatched("b") == pytest.approx(await lm.next_token_logits([1]))


def test_a_language_model_is_shared_not_copied_and_not_pickled() -> None:
    lm = table_lm(LAW)
    assert copy.deepcopy(lm) is lm
    assert copy.copy(lm) is lm
    with pytest.raises(HfpplError, match="not pickled"):
        lm.__reduce__()


# --- memory


ROW = 8 * len(ABC)  # bytes of a row


@pytest.mark.parametrize("limit", [0, ROW - 1, ROW, 3 * ROW + 1, 100 * ROW])
async def test_the_cache_of_rows_stays_below_its_limit_and_changes_no_result(limit: int) -> None:
    counted = Counted(LAW)
    lm = table_lm(counted, row_cache_bytes=limit)
    held: list[int] = []
    particles = await smc_standard(
        Walk(lm), 30, seed=3, on_step=lambda step: held.append(lm.stats().row_bytes)
    )
    assert shown(particles) == shown(await smc_standard(Walk(table_lm(LAW)), 30, seed=3))
    assert len(held) == 3
    assert max(held) <= limit
    if limit < 100 * ROW:
        assert min(held) >= min(held[0], limit - ROW)
    assert len(counted.asked) == len(set(counted.asked))  # within a run nothing is computed twice
    lm.clear_cache()
    assert lm.stats().row_bytes == 0


async def test_the_row_used_longest_ago_leaves_first() -> None:
    counted = Counted(LAW)
    lm = table_lm(counted, row_cache_bytes=2 * ROW)
    kept = [lm.prefix([i]) for i in range(3)]  # sequences stay, rows do not
    for i in (0, 1, 0, 2, 0, 1):
        await lm.next_token_logprobs([i])
        gc.collect()
    assert counted.asked == [(0,), (1,), (2,), (1,)]
    assert len(kept) == 3


async def test_after_clearing_everything_is_asked_anew_even_what_somebody_holds() -> None:
    counted = Counted(LAW)
    lm = table_lm(counted)
    context = LMContext(lm, "a")
    held = await context._row()
    lm.clear_kv_cache()
    assert await LMContext(lm, "a")._row() is held
    lm.clear_cache()
    assert await LMContext(lm, "a")._row() is not held
    assert counted.asked == [(0,), (0,)]


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="row_cache_bytes"):
        table_lm(LAW, row_cache_bytes=-1)


def test_sequences_are_one_object_while_somebody_needs_them() -> None:
    root = Prefix.root()
    node = root.descend([1, 2, 3])
    assert root.descend([1, 2]).child(3) is node
    assert (list(node), len(node), node[1], node[-2:], node.token_ids(1)) == ([1, 2, 3], 3, 2, [2, 3], [2, 3])
    assert [list(part) for part in node.path()] == [[1], [1, 2], [1, 2, 3]]
    assert copy.deepcopy(node) is node
