"""Copies of a particle's attributes, fast where there is nothing to copy."""

import copy
import functools
import random
import types
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import CopyError
from .random import Purpose, Streams

_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), type, range})


_SHARED: dict[int, Any] = {}  # by identity, what particles use and never own
_N_OWNERS: Counter[int] = Counter()


def share_parts(owner: object, *parts: object) -> None:
    """Let all copies of particles share these parts of a language model, as long as it lives."""
    # Functions are never copied; one kept here that knows its language model would keep that alive.
    kept = {id(part): part for part in parts if not isinstance(part, types.FunctionType)}
    _SHARED.update(kept)
    _N_OWNERS.update(kept.keys())
    weakref.finalize(owner, _release, list(kept)).atexit = False


def _release(ids: Iterable[int]) -> None:
    for part in ids:
        _N_OWNERS[part] -= 1
        if not _N_OWNERS[part]:
            del _N_OWNERS[part], _SHARED[part]


def shared_memo() -> dict[int, Any]:
    """A memo for `copy.deepcopy` in which everything that is shared is its own copy.

    Every copy of a particle needs one, so it costs no more than the copy of a dict, however many language
    models there are.
    """
    return _SHARED.copy()


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
