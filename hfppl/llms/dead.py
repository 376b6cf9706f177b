"""What a language model answers to a particle that has died.

A particle of weight zero runs on to the end of its step, since its user's code may have things to put
in order. Nothing it draws matters any more, so it is answered without a forward pass: half of the mass
on the ends of text, the rest spread over the vocabulary, so that loops which wait for an end, for a
word, for anything, come to one. A particle that goes on for too long is stopped.
"""

import functools
import math
from collections.abc import Iterable

import numpy as np

from ..logits import LogitsRow
from ..tokens import Vocabulary
from ..turn import Turn


def placeholder_row(vocabulary: Vocabulary, eos_token_ids: Iterable[int], turn: Turn) -> LogitsRow:
    """The row for a dead particle.

    Raises:
        TurnOverError: when it has asked too often.
    """
    turn.question_after_death()
    return _row(vocabulary, frozenset(eos_token_ids))


@functools.lru_cache(maxsize=8)
def _row(vocabulary: Vocabulary, eos_token_ids: frozenset[int]) -> LogitsRow:
    logits = np.where(vocabulary.exists, 0.0, -np.inf)
    ends = list(eos_token_ids)
    if ends:
        logits[ends] += math.log(max(1, vocabulary.size - len(ends)) / len(ends))
    return LogitsRow(logits)
