"""A task as a Python class: what a particle runs, and the calls it makes."""

import copy
import math
from collections.abc import Callable, Coroutine, Iterable
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, TypeVar, cast

from .copying import copy_attribute, slot_names
from .distributions.distribution import Distribution
from .errors import ArgumentError, ModelError, NoMassError
from .numerics import check_log_factor
from .submodels import CALLER, SubModel, submodel
from .turn import Turn, TurnOverError, begin_turn, current_turn, end_turn

__all__ = ["Model", "SubModel", "submodel"]

T = TypeVar("T")
Awaited = Coroutine[Any, Any, T]


class Model:
    """Base class of all models: a subclass calls `super().__init__()` and writes `async step()`.

    Inference runs many copies, the particles. Each `step` samples, observes and conditions, and calls
    `finish()` in the last one. Whatever `step` needs lives in attributes, and is copied with the
    particle; language models, contexts, masks and vocabularies are shared or copied in no time.

    Attributes:
        weight: log-weight of this particle, in nats; -inf once it is impossible.
        finished: whether it has taken its last step.
    """

    def __init__(self) -> None:
        self.weight: float = 0.0
        self.finished: bool = False
        self._twist: float = 0.0
        self._calls: list[tuple[str, Awaited[Any]]] = []
        self._turn_inside: Turn | None = None

    # --- for subclasses to write

    async def start(self) -> None:
        """Runs once in each particle before its first step, and never again on a copy."""

    async def step(self) -> None:
        """One step. Every subclass writes its own."""
        raise ModelError(f"{type(self).__name__} has no `async def step(self)`: that is where its task goes")

    def immutable_properties(self) -> Iterable[str]:
        """Names of attributes that copies of a particle share, since nothing changes them."""
        return ()

    def string_for_serialization(self) -> str:
        """The text of this particle in records and pictures."""
        return str(self)

    def __str__(self) -> str:
        """The text of the first `LMContext` among the attributes, unless a subclass knows better."""
        from .distributions import LMContext

        for value in self.__dict__.values():
            if isinstance(value, LMContext):
                return str(value)
        return type(self).__name__

    # --- the calls a step makes

    def sample(self, dist: Distribution[T], proposal: Distribution[T] | None = None) -> Awaited[T]:
        """Draw from `dist`. To be awaited.

        Args:
            dist: the distribution the model means.
            proposal: where to draw from instead; the weight is corrected by the ratio of the two
                probabilities. It must be able to draw whatever `dist` and what follows leave possible.

        Returns:
            The value drawn.
        """
        return self._watched("sample", self._in_its_turn(self._sample, dist, proposal))

    def observe(self, dist: Distribution[T], x: T) -> Awaited[T]:
        """Condition on `dist` having taken the value `x`; -inf if it cannot. To be awaited.

        Returns:
            `x`.
        """
        return self._watched("observe", self._in_its_turn(self._observe, dist, x))

    def intervene(self, dist: Distribution[T], x: T) -> Awaited[T]:
        """Force `dist` to take the value `x`, with what that brings about, at no weight. To be awaited.

        Returns:
            `x`.
        """
        return self._watched("intervene", self._in_its_turn(self._intervene, dist, x))

    def call(self, submodel: SubModel) -> Awaited[Any]:
        """Run a submodel as part of this model. To be awaited.

        Returns:
            What the submodel returns.
        """
        return self._watched("call", self._in_its_turn(self._call, submodel))

    def condition(self, b: Any) -> None:
        """Require that `b` is true: otherwise the particle's weight becomes zero, and it is finished."""
        if not b:
            self.score(-math.inf)
            self.finish()

    def score(self, score: Any) -> None:
        """Multiply the weight by exp(`score`), as part of the target.

        Raises:
            NumericalError: if `score` is NaN or +inf.
        """
        self.weight += self._checked(score, "score")
        if self.weight == -math.inf:
            self._die()

    def twist(self, amt: Any) -> None:
        """Multiply the weight by exp(`amt`) until the next step: a hint of how promising the particle is.

        It steers resampling and cancels in the target. -inf says that nothing can follow: the particle
        is impossible at once.

        Raises:
            NumericalError: if `amt` is NaN or +inf.
        """
        amount = self._checked(amt, "twist")
        if amount == -math.inf:
            self.condition(False)
            return
        self._twist += amount
        self.weight += amount

    def untwist(self) -> None:
        """Take back all twists."""
        self.weight -= self._twist
        self._twist = 0.0

    def finish(self) -> None:
        """This is the last step. Twists are taken back."""
        self.untwist()
        self.finished = True

    def done_stepping(self) -> bool:
        """Whether the particle has taken its last step."""
        return self.finished

    def reset(self) -> None:
        """As new: weight 1, unfinished, without twists."""
        self.weight = 0.0
        self.finished = False
        self._twist = 0.0

    # --- behind the calls

    async def _in_its_turn(self, call: Callable[..., Awaited[Any]], *arguments: Any) -> Any:
        """Run a call in this model's own turn, also inside another's, as a copy that looks ahead does."""
        turn = current_turn()
        if turn is None or turn.owner is self:
            return await call(*arguments)
        if self._turn_inside is None or not self._turn_inside.is_inside(turn):
            self._turn_inside = turn.of_a_copy(self)
        token = begin_turn(self._turn_inside)
        try:
            return await call(*arguments)
        finally:
            end_turn(token)

    async def _sample(self, dist: Distribution[T], proposal: Distribution[T] | None) -> T:
        self._die_if_impossible()
        turn = current_turn()
        if turn is not None and turn.choices is not None and not turn.dead:
            return cast(T, await turn.choices.sample(self, dist, proposal))
        source = dist if proposal is None else proposal
        try:
            x, log_q = await source.sample()
        except NoMassError:
            if turn is None:
                raise
            self.score(-math.inf)
            try:
                x, log_q = await source.sample()  # a language model has an answer for the dead
            except NoMassError:
                if turn.is_of_a_copy:
                    raise
                raise TurnOverError from None  # there is no value to go on with
        if proposal is None:
            return x
        log_p = check_log_factor(await dist.log_prob(x), lambda: f"the log_prob of {dist!r}{_here()} is")
        if log_p == -math.inf:
            self.score(-math.inf)
        elif not self._dead():
            self.score(log_p - log_q)
        return x

    async def _observe(self, dist: Distribution[T], x: T) -> T:
        self._die_if_impossible()
        self.score(check_log_factor(await dist.log_prob(x), lambda: f"the log_prob of {dist!r}{_here()} is"))
        return x

    async def _intervene(self, dist: Distribution[T], x: T) -> T:
        self._die_if_impossible()
        if not await dist.intervene(x):
            self.score(-math.inf)
        return x

    async def _call(self, submodel: SubModel) -> Any:
        self._die_if_impossible()
        if not isinstance(submodel, SubModel):
            raise ArgumentError(
                f"call() takes a submodel, such as `sample_word(context)`, not {submodel!r}; "
                "an ordinary async method is awaited directly"
            )
        token = CALLER.set(self)
        try:
            return await submodel.forward()
        finally:
            CALLER.reset(token)

    def _watched(self, name: str, call: Awaited[T]) -> Awaited[T]:
        """Remember a coroutine until it has begun, so that a forgotten `await` is noticed."""
        calls = self.__dict__.get("_calls")
        if calls is None:
            call.close()
            raise ModelError(
                f"{type(self).__name__}.__init__ must call super().__init__() before anything else"
            )
        if calls and not _not_begun(calls[-1][1]):
            calls.pop()
        calls.append((name, call))
        return call

    def _forgotten_calls(self) -> list[tuple[str, Awaited[Any]]]:
        """The calls made so far that nobody has begun to await."""
        self._calls[:] = [(name, call) for name, call in self._calls if _not_begun(call)]
        return self._calls

    def _token_count(self) -> int:
        """Tokens drawn so far, in all the contexts among the attributes."""
        from .distributions import LMContext

        return sum(value.token_count for value in self.__dict__.values() if isinstance(value, LMContext))

    def _checked(self, value: Any, name: str) -> float:
        return check_log_factor(value, lambda: f"{type(self).__name__}.{name}(){_here()} got")

    def _dead(self) -> bool:
        return self.weight == -math.inf

    def _die_if_impossible(self) -> None:
        if self.weight == -math.inf:
            self._die()
            turn = current_turn()
            if turn is not None and turn.owner is self:
                turn.question_after_death()

    def _die(self) -> None:
        """From here on, the language model is not troubled for this particle in this step."""
        turn = current_turn()
        if turn is not None and turn.owner is self:
            turn.dead = True

    def __deepcopy__(self, memo: dict[int, Any]) -> "Model":
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        shared = set(self.immutable_properties())
        for name, value in self.__dict__.items():
            if name == "_calls":
                new.__dict__[name] = []
            elif name == "_turn_inside":
                new.__dict__[name] = None
            else:
                new.__dict__[name] = value if name in shared else copy_attribute(self, name, value, memo)
        for name in slot_names(type(self)):  # type: ignore[arg-type]  # classes are hashable
            if hasattr(self, name):
                value = getattr(self, name)
                setattr(new, name, value if name in shared else copy_attribute(self, name, value, memo))
        return new

    def __copy__(self) -> "Model":
        return copy.deepcopy(self)


def _here() -> str:
    """Which particle and step this is, for messages."""
    turn = current_turn()
    return "" if turn is None else f" ({turn})"


def _not_begun(call: Awaited[Any]) -> bool:
    return getcoroutinestate(call) == CORO_CREATED
