"""What a language model answers to a particle that has died.

A particle of weight zero runs on to the end of its step, since its user's code may have things to put
in order. Nothing it draws matters any more, so it is answered without a forward pass: half of the mass
on the ends of text, the rest spread over the vocabulary, so that loops which wait for an end, for a
word, for anything, come to one. A particle that has drawn a thousand times since is stopped.
"""

import functools
import math
from collections.abc import Iterable

import numpy as np

from ..logits import LogitsRow
from ..random import current_turn
from ..tokens import Vocabulary

_MAX_DRAWS = 1000


class DeadParticleStoppedError(BaseException):
    """Ends the step of a dead particle that goes on and on. For the drivers alone to catch."""


def placeholder_row(vocabulary: Vocabulary, eos_token_ids: Iterable[int]) -> LogitsRow:
    """The row for a dead particle.

    Raises:
        DeadParticleStoppedError: at the thousandth question since it died.
    """
    turn = current_turn()
    if turn is not None:
        turn.draws_after_death += 1
        if turn.draws_after_death > _MAX_DRAWS:
            raise DeadParticleStoppedError
    return _row(vocabulary, frozenset(eos_token_ids))


@functools.lru_cache(maxsize=8)
def _row(vocabulary: Vocabulary, eos_token_ids: frozenset[int]) -> LogitsRow:
    logits = np.where(vocabulary.exists, 0.0, -np.inf)
    ends = list(eos_token_ids)
    if ends:
        logits[ends] += math.log(max(1, vocabulary.size - len(ends)) / len(ends))
    return LogitsRow(logits)
