"""Copies of a particle's attributes, fast where there is nothing to copy."""

import copy
import functools
import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import CopyError
from .random import Purpose, Streams

_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), type, range})


def copy_attribute(owner: object, name: str, value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of one attribute.

    Raises:
        CopyError: if it cannot be copied, naming it and the ways out.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is list and all(type(item) in _ATOMS for item in value):
        known = memo.get(id(value))
        if known is None:
            known = memo[id(value)] = value.copy()
        return known
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
    for index, part in enumerate(copies):
        if isinstance(part, np.random.Generator):
            words: Any = streams.seed_words(Purpose.COPY, step, slot, index)
            part.bit_generator.state = type(part.bit_generator)(words).state
        elif isinstance(part, np.random.RandomState):
            part.seed(streams.seed_words(Purpose.COPY, step, slot, index).generate_state(8))
        elif isinstance(part, random.Random):
            part.seed(bytes(streams.seed_words(Purpose.COPY, step, slot, index).generate_state(8)))


@functools.cache
def slot_names(cls: type) -> tuple[str, ...]:
    """The attributes a class keeps outside `__dict__`."""
    names = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
