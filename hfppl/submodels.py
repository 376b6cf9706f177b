"""Reusable pieces of models."""

import functools
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from .distributions.distribution import Distribution
from .errors import ModelError

if TYPE_CHECKING:
    from .modeling import Model

T = TypeVar("T")
Awaited = Coroutine[Any, Any, T]

CALLER: ContextVar["Model"] = ContextVar("hfppl_caller")  # the particle whose submodel this task runs


class SubModel:
    """A reusable piece of a model: `await self.call(piece)` runs its `forward`.

    The calls inside it count towards the particle that called it. One object may be shared by all
    particles, provided that `forward` keeps what it computes in local variables.
    """

    @property
    def parent(self) -> "Model":
        """The particle that is running this submodel. Setting it has no effect: `call` knows.

        Raises:
            ModelError: outside a `call`.
        """
        try:
            return CALLER.get()
        except LookupError:
            raise ModelError("a submodel runs inside a model: `await self.call(submodel)`") from None

    @parent.setter
    def parent(self, parent: object) -> None:
        """For older subclasses, which set it to None in `__init__`."""

    async def run_with_parent(self, parent: "Model") -> Any:
        """The historical spelling of `await parent.call(self)`."""
        return await parent.call(self)

    async def forward(self) -> Any:
        """What the submodel does. Every subclass writes its own."""
        raise ModelError(f"{type(self).__name__} has no `async def forward(self)`")

    def sample(self, dist: Distribution[T], proposal: Distribution[T] | None = None) -> Awaited[T]:
        """See `Model.sample`."""
        return self.parent.sample(dist, proposal)

    def observe(self, dist: Distribution[T], x: T) -> Awaited[T]:
        """See `Model.observe`."""
        return self.parent.observe(dist, x)

    def intervene(self, dist: Distribution[T], x: T) -> Awaited[T]:
        """See `Model.intervene`."""
        return self.parent.intervene(dist, x)

    def call(self, submodel: "SubModel") -> Awaited[Any]:
        """See `Model.call`."""
        return self.parent.call(submodel)

    def condition(self, b: Any) -> None:
        """See `Model.condition`."""
        self.parent.condition(b)

    def score(self, score: Any) -> None:
        """See `Model.score`."""
        self.parent.score(score)

    def twist(self, amt: Any) -> None:
        """See `Model.twist`."""
        self.parent.twist(amt)


def submodel(f: Callable[..., Awaited[Any]]) -> Callable[..., SubModel]:
    """Turn an async function whose first parameter is `self` into a submodel class.

    The function's `self` offers the calls of a model: `sample`, `observe` and the rest. Calling the
    decorated name with the other arguments makes a submodel to be run with `await self.call(...)`.
    """

    @functools.wraps(f, updated=())
    class FunctionSubModel(SubModel):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._args = args
            self._kwargs = kwargs

        async def forward(self) -> Any:
            return await f(self, *self._args, **self._kwargs)

    return FunctionSubModel
