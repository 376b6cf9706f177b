"""Copies of a particle's attributes, fast where there is nothing to copy."""

import copy
import functools
import random
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from .errors import CopyError
from .random import Purpose, Streams

_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), type, range})


class Shares(Protocol):
    """Something that particles use and never own, a language model: its parts are not copied either."""

    def shared_objects(self) -> Iterable[object]:
        """What every copy of a particle shares."""
        ...


_SHARED: "weakref.WeakSet[Shares]" = weakref.WeakSet()


def share_parts(owner: Shares) -> None:
    """From now on, `copy_attribute` and `shared_memo` leave the parts of `owner` as they are."""
    _SHARED.add(owner)


def shared_memo() -> dict[int, Any]:
    """A memo for `copy.deepcopy` in which everything that is shared is its own copy."""
    return {id(part): part for owner in list(_SHARED) for part in owner.shared_objects()}


def copy_attribute(owner: object, name: str, value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of one attribute.

    Raises:
        CopyError: if it cannot be copied, naming it and the ways out.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if (kind is list or kind is set) and all(type(item) in _ATOMS for item in value):
        memo[id(value)] = duplicate = value.copy()
        return duplicate
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:
        raise CopyError(
            f"{type(owner).__name__}.{name} ({kind.__name__}) cannot be copied, and every particle needs "
            f"its own: {error}. Name it in immutable_properties() if nothing changes it, give its class a "
            "__deepcopy__, or make it anew in each step"
        ) from error


def renew_generators(copies: Iterable[Any], streams: Streams, step: int, slot: int) -> None:
    """Give the random generators among a particle's copied parts streams of their own.

    Otherwise copies of a particle would replay each other's draws.
    """
    generators = [
        part
        for part in copies
        if isinstance(part, np.random.Generator | np.random.RandomState | random.Random)
    ]
    for index, part in enumerate(generators):
        words: Any = streams.seed_words(Purpose.COPY, step, slot, index)
        if isinstance(part, np.random.Generator):
            part.bit_generator.state = type(part.bit_generator)(words).state
        elif isinstance(part, np.random.RandomState):
            part.seed(words.generate_state(8))
        else:
            part.seed(bytes(words.generate_state(8)))


@functools.cache
def slot_names(cls: type) -> tuple[str, ...]:
    """The attributes a class keeps outside `__dict__`."""
    names = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
