"""Joining of requests: whoever asks at the same time is answered by one batch.

No clock is involved. A batch goes when the event loop has come round a few times without a new
request, which is when everything that can run has run up to its own request, or when it is full.
While a batch is computed, on the worker's thread, requests gather for the next.

How a request ends: with its row; with the error of its own sequence, or of its batch, unchanged in
type; or, if its task is cancelled, by leaving the batch that is gathering.
"""

import asyncio
import copy
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future as WorkerFuture
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from ..errors import HfpplError, QueriesResetError

Key = TypeVar("Key")
Result = TypeVar("Result")
Value = TypeVar("Value")

# How often the loop must come round without a new request. One round would do for particles that
# ask straight away; the others are for those that first yield, gather, or start tasks of their own.
_QUIET_ROUNDS = 4


class Batcher(Generic[Key, Value]):
    """Collects requests from any number of event loops and has them evaluated on one worker thread."""

    def __init__(
        self,
        evaluate: Callable[[Sequence[Key]], Sequence[Value | Exception]],
        batch_limit: Callable[[], int],
    ) -> None:
        """Args:
        evaluate: from keys, hashable and all different, to what each is answered; an exception in a
            place fails that one.
        batch_limit: `batch_limit()` is how many requests make a full batch.
        """
        self._evaluate = evaluate
        self._batch_limit = batch_limit
        self._start_worker()
        _BATCHERS.add(self)

    async def request(self, key: Key) -> Value:
        """The answer for one key, computed together with what else is being asked for."""
        loop = asyncio.get_running_loop()
        with self._lock:
            queue = self._queues.get(loop)
            if queue is None:
                queue = self._queues[loop] = _Queue(self, loop)
        return await queue.request(key)

    def evaluate_now(self, keys: Sequence[Key]) -> Sequence[Value | Exception]:
        """Blocks for one batch of its own."""
        return self._submit(lambda: self._evaluate(keys)).result()

    def run(self, function: Callable[[], None]) -> None:
        """Blocks until `function` has run on the worker's thread, between two batches."""
        self._submit(function).result()

    def _submit(self, function: Callable[[], Result]) -> "WorkerFuture[Result]":
        if threading.get_ident() == self._worker_thread:
            raise HfpplError(
                "the language model was asked from inside its own forward pass, which would wait for itself "
                "for ever; compute what is needed there directly"
            )
        return self._worker.submit(function)

    def _start_worker(self) -> None:
        """A worker that has yet to begin; in a forked process the old one's thread is not there any more."""
        self._worker_thread: int | None = None
        self._worker = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="hfppl-forward", initializer=self._name_worker
        )
        self._queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Key, Value]] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def _name_worker(self) -> None:
        self._worker_thread = threading.get_ident()

    def reset(self) -> None:
        """Fail every request still waiting for a batch, from any thread."""
        with self._lock:
            queues = list(self._queues.items())
        for loop, queue in queues:
            if not loop.is_closed():
                loop.call_soon_threadsafe(queue.reset)


_BATCHERS: weakref.WeakSet[Batcher[Any, Any]] = weakref.WeakSet()


def _restart_workers() -> None:
    for batcher in list(_BATCHERS):
        batcher._start_worker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_workers)


class _Queue(Generic[Key, Value]):
    """The requests of one event loop. Touched by that loop's thread only."""

    def __init__(self, batcher: Batcher[Key, Value], loop: asyncio.AbstractEventLoop) -> None:
        self._evaluate = batcher._evaluate
        self._worker = batcher._worker
        self._batch_limit = batcher._batch_limit
        self._loop = weakref.ref(loop)
        self._waiting: dict[Key, list[asyncio.Future[Value]]] = {}
        self._in_flight = False
        self._watching = False
        self._arrivals = 0

    async def request(self, key: Key) -> Value:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Value] = loop.create_future()
        self._waiting.setdefault(key, []).append(future)
        self._arrivals += 1
        if not self._in_flight:
            if len(self._waiting) >= self._batch_limit():
                self._send(loop)
            else:
                self._watch(loop)
        try:
            return await future
        finally:
            if future.cancelled():
                self._withdraw(key, future)

    def _withdraw(self, key: Key, future: "asyncio.Future[Value]") -> None:
        futures = self._waiting.get(key, [])
        if future in futures:
            futures.remove(future)
            if not futures:
                del self._waiting[key]

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._watching:
            self._watching = True
            loop.call_soon(self._send_when_quiet, loop, self._arrivals, 0)

    def _send_when_quiet(self, loop: asyncio.AbstractEventLoop, arrivals: int, quiet_rounds: int) -> None:
        if self._in_flight or not self._waiting:
            self._watching = False
            return
        quiet_rounds = quiet_rounds + 1 if arrivals == self._arrivals else 0
        if quiet_rounds < _QUIET_ROUNDS:
            loop.call_soon(self._send_when_quiet, loop, self._arrivals, quiet_rounds)
            return
        self._watching = False
        self._send(loop)

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        limit = self._batch_limit()
        batch = dict(list(self._waiting.items())[:limit])
        for key in batch:
            del self._waiting[key]
        self._in_flight = True
        job = self._worker.submit(self._evaluate, list(batch))
        job.add_done_callback(lambda done: self._report(done, batch))

    def _report(
        self,
        done: "WorkerFuture[Sequence[Value | Exception]]",
        batch: "dict[Key, list[asyncio.Future[Value]]]",
    ) -> None:
        """On the worker's thread: hand the answers to the loop, if there still is one."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(self._settle, loop, done, batch)
        except RuntimeError:  # closed between the two lines: nobody waits any more
            if not loop.is_closed():
                raise

    def _settle(
        self,
        loop: asyncio.AbstractEventLoop,
        done: "WorkerFuture[Sequence[Value | Exception]]",
        batch: "dict[Key, list[asyncio.Future[Value]]]",
    ) -> None:
        self._in_flight = False
        error = done.exception()
        answers: Sequence[Value | BaseException] = [error] * len(batch) if error else done.result()
        for futures, answer in zip(batch.values(), answers, strict=True):
            for future in futures:
                if future.done():
                    continue
                if isinstance(answer, BaseException):
                    future.set_exception(_own_error(answer))
                else:
                    future.set_result(answer)
        if self._waiting:
            self._watch(loop)

    def reset(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(
                        QueriesResetError("the request was dropped by reset_async_queries(); ask again")
                    )


def _own_error(error: BaseException) -> BaseException:
    """A copy for one waiter, so that what its run adds to the error is not seen by another's."""
    if isinstance(error, StopIteration):  # which no future can carry
        own: BaseException = RuntimeError("the language model raised StopIteration")
        own.__cause__ = error
        return own
    try:
        own = copy.copy(error)
    except Exception:
        return error
    if type(own) is not type(error):
        return error
    own.__cause__, own.__context__ = error.__cause__, error.__context__
    own.__suppress_context__ = error.__suppress_context__
    return own.with_traceback(error.__traceback__)
