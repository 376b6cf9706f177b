"""One token of a text under a constraint: drawn, weighed, and taken into the constraint's state."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import State
from ..distributions import LMContext, TokenCategorical
from ..errors import ArgumentError
from ..logits import LogitsRow
from ..modeling import submodel
from ..random import rng
from ..tokens import Token, TokenMask
from ..turn import current_turn
from .rejection import draw_allowed

MAX_TESTS = 1000
_LEAVES_NOTHING = (
    "the proposal leaves none of the possible next tokens of {!r} possible; it must be able to draw whatever "
    "the rule allows"
)

# From log-probabilities of the next token to those to draw it from; or another language model's context.
Proposal = Callable[[NDArray[np.float64]], Any] | LMContext | None


@submodel
async def next_allowed_token(
    self: Any, context: LMContext, state: State, proposal: Proposal = None, max_tests: int = MAX_TESTS
) -> Token | None:
    """Sample the next token among those that a constraint allows, and go on with it.

    The weight is multiplied by the probability that the next token is one of them, or by an unbiased
    estimate of it where the constraint is slow to say which they are (`Predicate`).

    Args:
        context: the text.
        state: the constraint's, which is advanced along with the context.
        proposal: where to draw from instead: a context of another language model over the same
            vocabulary, which is advanced too, or a function from log-probabilities (V,) to such.
        max_tests: how many tokens a slow checker may refuse, one after the other, before the particle
            dies; estimates stay unbiased. Up to four more are asked about once one is allowed.

    Returns:
        The token; None if the particle has died.
    """
    if state.is_lazy and not is_enumerated():
        token = await _by_rejection(self.parent, context, state, proposal, max_tests)
    else:
        token = await token_within(self.parent, context, state.mask(), proposal)
    if token is not None:
        state.advance(token)
    return token


async def token_within(model: Any, context: LMContext, mask: TokenMask, proposal: Proposal) -> Token | None:
    """Sample the next token in a mask."""
    await model.observe(context.mask_dist(mask), True)
    if _is_dead(model):
        return None
    if proposal is None:
        token = await model.sample(context.next_token())
    elif isinstance(proposal, LMContext):
        token = await _token_from_context(model, context, mask, proposal)
    else:
        row = _proposed(context, proposal, await context.logprobs())
        token = await model.sample(context.next_token(), proposal=TokenCategorical(context.lm, row))
    return None if _is_dead(model) else token


async def _token_from_context(model: Any, context: LMContext, mask: TokenMask, proposal: LMContext) -> Any:
    """Sample the next token in a mask by another context's distribution."""
    if is_enumerated():
        row = await proposal._row()
        if row.mass(proposal.temp, (proposal.model_mask & mask).factors).log_total == -math.inf:
            current_choices().missed = True
            token = await model.sample(context.next_token())
            await model.intervene(proposal.next_token(), token)
            return token
    await model.intervene(proposal.mask_dist(mask), True)
    if _is_dead(model):
        raise ArgumentError(_LEAVES_NOTHING.format(context))
    return await model.sample(context.next_token(), proposal=proposal.next_token())


async def any_token(context: LMContext) -> int:
    """A token drawn without being taken."""
    row = await context._row()
    return row.draw(rng().random(), context._mass(row), context.temp, context.model_mask.factors)


async def _by_rejection(
    model: Any, context: LMContext, state: State, proposal: Proposal, max_tests: int
) -> Token | None:
    candidates = (context.model_mask & state.candidates()).factors
    row, temperature, target = await _row_to_draw_from(context, proposal, candidates)
    token_id, log_mass = draw_allowed(row, temperature, candidates, state.allows, rng(), max_tests)
    if token_id is None:
        model.condition(False)
        return None
    whole = context._mass(target)
    if proposal is None:
        model.score(log_mass - whole.log_total)
    else:
        log_p = target.log_prob(token_id, whole, context.temp)
        drawn_from = row.mass(temperature, candidates)
        log_q = row.log_prob(token_id, drawn_from, temperature)
        model.score(log_mass - drawn_from.log_total + log_p - log_q)
    if isinstance(proposal, LMContext):
        await model.intervene(proposal.next_token(), token_id)
    await model.intervene(context.next_token(), token_id)
    return None if _is_dead(model) else Token(context.lm, token_id)


async def _row_to_draw_from(
    context: LMContext, proposal: Proposal, candidates: NDArray[np.floating]
) -> tuple[LogitsRow, float, LogitsRow]:
    """The row to draw from, its temperature, and the row of the target."""
    target = await context._row()
    if proposal is None:
        return target, context.temp, target
    if isinstance(proposal, LMContext):
        return await proposal._row(), proposal.temp, target
    logprobs = np.where(candidates > 0, context._logprobs(target), -np.inf)
    return LogitsRow(_proposed(context, proposal, logprobs)), 1.0, target


def _proposed(
    context: LMContext, proposal: Callable[[NDArray[np.float64]], Any], logprobs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What a function makes of log-probabilities, -inf where these are."""
    row = np.array(proposal(logprobs.copy()), dtype=np.float64)
    if row.shape != logprobs.shape:
        raise ArgumentError(
            f"the proposal made {row.shape} of {logprobs.shape} log-probabilities; it must keep their number"
        )
    row[logprobs == -np.inf] = -np.inf
    if row.max() == -math.inf and logprobs.max() > -math.inf:
        raise ArgumentError(_LEAVES_NOTHING.format(context))
    return row


def is_enumerated() -> bool:
    """Whether every choice is to be known, so that nothing may be left to chance."""
    return current_choices() is not None


def current_choices() -> Any:
    """The choices of an enumeration that this is part of."""
    turn = current_turn()
    return None if turn is None else turn.choices


def _is_dead(model: Any) -> bool:
    return bool(model.weight == -math.inf)
