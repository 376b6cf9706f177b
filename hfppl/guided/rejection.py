"""Drawing a token that a slow checker allows, without asking it about the whole vocabulary.

Adaptive weighted rejection sampling (Lipkin et al. 2025, arXiv 2504.05410): tokens are drawn without
replacement until one is allowed; further draws then tell how much of the distribution is allowed, which
the particle's weight must be multiplied by. The estimate of that mass is the ordered one of Des Raj
(1956, JASA 51:269): at each further draw, what is known to be allowed, plus all that is untested if the
token drawn from it is allowed. Each of these is unbiased given what came before, so any average of them
is, whose coefficients are chosen before the draws they belong to.

The token and the mass together are properly weighted: over the draws, the expected mass where token y
comes out is the probability of y, for every allowed y.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..logits import LogitsRow

_FURTHER_TESTS = 4
# Where so little is untested, beside what is known to be allowed, one more test says all there is to say.
_LITTLE = 1e-3


def draw_allowed(
    row: LogitsRow,
    temperature: float,
    candidates: NDArray[np.floating],
    allows: Callable[[int], bool],
    rng: np.random.Generator,
    max_tests: int,
) -> tuple[int | None, float]:
    """A token that is allowed, and an unbiased estimate of the mass of all that are.

    Args:
        row: the distribution to draw from.
        temperature: of the row.
        candidates: (V,) 1 where a token may be allowed, 0 elsewhere.
        allows: the checker, asked about each token once at most.
        rng: where the uniforms come from.
        max_tests: after so many rejections, the last draw stands for all that is untested.

    Returns:
        The token, or None, and the log of the mass, as `LogitsRow.mass` has it; -inf for None.
    """
    untested = candidates.copy()
    n_tests = 0
    while True:
        rest = row.mass(temperature, untested)
        if rest.log_total == -math.inf:
            return None, -math.inf
        token_id = row.draw(rng.random(), rest, temperature, untested)
        untested[token_id] = 0
        n_tests += 1
        if allows(token_id):
            break
        if n_tests >= max_tests:
            return None, -math.inf
    if n_tests >= max_tests:
        return token_id, rest.log_total
    peak = rest.log_total  # masses below are relative to what was untested when the token was found
    known = math.exp(row.log_prob(token_id, rest, temperature))
    estimate, share_left = 0.0, 1.0
    for i in range(_FURTHER_TESTS):
        rest = row.mass(temperature, untested)
        unknown = math.exp(rest.log_total - peak)
        if unknown == 0:
            break
        last = i == _FURTHER_TESTS - 1 or unknown < _LITTLE * known
        # Later draws know more, and have twice the share of the one before.
        share = share_left if last else 2.0**i / (2**_FURTHER_TESTS - 1)
        drawn = row.draw(rng.random(), rest, temperature, untested)
        untested[drawn] = 0
        if allows(drawn):
            estimate += share * (known + unknown)
            known += unknown * math.exp(row.log_prob(drawn, rest, temperature))
        else:
            estimate += share * known
        share_left -= share
        if last:
            break
    estimate += share_left * known  # a share that is left means that all has been tested
    return token_id, peak + math.log(estimate)
