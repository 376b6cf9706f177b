"""The ready-made model: a text under a constraint, from the prompt to its end."""

import inspect
import math
from collections.abc import Iterable
from typing import Any, Literal

from ..constraints import Constraint
from ..constraints.predicate import whole_characters
from ..distributions import LMContext
from ..errors import ArgumentError
from ..llms import CachedCausalLM
from ..modeling import Model
from ..tokens import Token
from .critic import Critic
from .next_token import MAX_TESTS, any_token, is_enumerated, next_allowed_token, token_within

Ending = Literal["eos", "boundary"]


class GuidedModel(Model):
    """A text of a language model's that obeys a constraint. One step is one token.

    The target is exact: the language model's distribution over all sequences of tokens, in whatever
    way they split the text, that end with an end token within `max_tokens` tokens, that one included,
    and whose bytes before it are a text of the constraint. Z is the probability of that event.

    With `end="boundary"`, the text ends instead before the first token that would not go on with it,
    whatever that token is, and has at most `max_tokens` tokens: for a piece in the middle of a document.
    With constraints combined, a token goes on with the text if it does for each of them by itself.

    `str(particle)` is the text, without the end token.

    Attributes:
        context: the text so far, an `LMContext`.
        state: where it stands in the constraint.
        max_tokens: the limit.
    """

    def __init__(
        self,
        lm: CachedCausalLM,
        prompt: Any,
        constraint: Constraint,
        max_tokens: int,
        temp: float = 1.0,
        critic: Any = None,
        proposal: Any = None,
        *,
        end: Ending = "eos",
        heal: bool = False,
        max_tests: int = MAX_TESTS,
    ) -> None:
        """Args:
            lm: the language model.
            prompt: a text, token ids, or chat messages.
            constraint: what the text must be.
            max_tokens: the most tokens it may have.
            temp: of the language model; not 0.
            critic: a function from a text to a log-factor in nats, sync or async, or an object with a
                method `batch(texts)`. The factor of the whole text multiplies the target; on the way,
                that of the text so far, up to its last whole character, is a twist, and -inf says that
                nothing can follow.
            proposal: where to draw tokens from instead of `lm`: another language model with the same
                vocabulary, or a function from log-probabilities (V,), in nats, -inf where nothing is
                allowed, to log-probabilities. It must leave possible whatever the constraint allows. Under
                "boundary", where the text may end and a checker is slow, it is not used.
            end: "eos" or "boundary", see above.
            heal: draw the prompt's last token again, see `LMContext`.
            max_tests: see `next_allowed_token`.

        Raises:
            ArgumentError: for arguments that cannot be right.
            VocabularyError: for a proposal with another vocabulary.
        """
        super().__init__()
        if not isinstance(lm, CachedCausalLM):
            raise ArgumentError(f"a language model is a CachedCausalLM, not {lm!r}")
        if not isinstance(constraint, Constraint):
            raise ArgumentError(
                f"a constraint is made with hfppl.constraints (Regex, JsonSchema, ...), not {constraint!r}"
            )
        for name, value in (("max_tokens", max_tokens), ("max_tests", max_tests)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} is a whole number of at least 1, not {value!r}")
        if end not in ("eos", "boundary"):
            raise ArgumentError(f'end is "eos" or "boundary", not {end!r}')
        if end == "eos" and not lm.eos_token_ids:
            raise ArgumentError(
                "this language model has no end token: set lm.eos_token_ids, or pass end='boundary'"
            )
        self.context = LMContext(lm, prompt, temp, show_eos=False, heal=heal)
        if self.context.temp == 0:
            raise ArgumentError(
                "at temperature 0 the language model has one text only, which obeys the rule or does not: "
                "there is nothing to sample; use a low temperature such as 0.1"
            )
        self.state = constraint.start(self.context)
        self.max_tokens = max_tokens
        self._critic = None if critic is None else Critic(critic)
        self._proposal = self._checked_proposal(proposal, prompt, heal)
        self._end = end
        self._max_tests = max_tests

    def immutable_properties(self) -> Iterable[str]:
        """What copies share."""
        return () if isinstance(self._proposal, LMContext) else ("_proposal",)

    async def step(self) -> None:
        """Add a token, or end."""
        if self._end == "eos":
            await self._step_towards_end_token()
        else:
            await self._step_towards_boundary()
        if self._critic is not None and self.weight > -math.inf:
            if self.finished:
                self.score(await self._critic(str(self.context)))
            else:  # what there is of a character is not yet a text
                text, _ = whole_characters(bytes(self.context))
                self.twist(await self._critic(str(self.context) if text is None else text))

    async def _step_towards_end_token(self) -> None:
        lm = self.context.lm
        if self.context.token_count == self.max_tokens - 1:
            self.condition(self.state.can_end)
            await token_within(self, self.context, lm.masks.EOS, self._proposal)
            self.finish()
            return
        token = await self._next_allowed_token()
        if token is not None and token in lm.masks.EOS:
            self.finish()

    async def _step_towards_boundary(self) -> None:
        full = self.context.token_count == self.max_tokens
        if not self.state.can_end:
            if full:
                self.condition(False)
            else:
                await self._next_allowed_token()
        elif self.state.is_lazy and not is_enumerated():
            await self._go_on_or_end_lazily(full)
        else:
            going_on = self.context.mask_dist(self.state.text_mask())
            if full:
                await self.observe(going_on, False)
                self.finish()
            elif await self.sample(going_on):
                self._advance(await token_within(self, self.context, self.state.text_mask(), self._proposal))
            else:
                self.finish()

    async def _go_on_or_end_lazily(self, full: bool) -> None:
        """One token is drawn: it goes on with the text and is taken, or the text ends before it."""
        # From the language model itself: whether the text ends here is not for a proposal to say.
        token_id = await any_token(self.context)
        goes_on = token_id not in self.context.lm.eos_token_ids and token_id in self.state.candidates()
        if not goes_on or not self.state.allows(token_id):
            self.finish()
        elif full:
            self.condition(False)
        else:
            if isinstance(self._proposal, LMContext):
                await self.intervene(self._proposal.next_token(), Token(self.context.lm, token_id))
            await self.intervene(self.context.next_token(), Token(self.context.lm, token_id))
            self.state.advance(token_id)

    async def _next_allowed_token(self) -> Any:
        return await self.call(next_allowed_token(self.context, self.state, self._proposal, self._max_tests))

    def _advance(self, token: Any) -> None:
        if token is not None:
            self.state.advance(token)

    def _checked_proposal(self, proposal: Any, prompt: Any, heal: bool) -> Any:
        if isinstance(proposal, CachedCausalLM):
            self.context.lm.vocabulary.check_same(proposal.vocabulary, "the proposal")
            return LMContext(proposal, prompt, self.context.temp, heal=heal)
        if proposal is not None and (not callable(proposal) or inspect.iscoroutinefunction(proposal)):
            raise ArgumentError(
                f"a proposal is a language model or a function of log-probabilities, not {proposal!r}"
            )
        return proposal
