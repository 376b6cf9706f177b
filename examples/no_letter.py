"""A sentence without the letter e: the smallest model there is.

The idea: a rule is *observed*. `observe(mask_dist(allowed), True)` does two things at once. It narrows what
the next token may be, and it multiplies the particle's weight by the probability that the language model
itself gave to the allowed tokens. A particle that the rule forces into an unlikely corner thereby loses
weight, and resampling lets likelier ones take its place.

    python examples/no_letter.py --prompt "My favourite season is winter, because"
"""

import argparse
import asyncio
import re

from hfppl import CachedCausalLM, LMContext, Model, Particles, TokenMask, smc_standard


class NoLetterE(Model):
    """The rest of a sentence, in tokens that have no e."""

    def __init__(self, lm: CachedCausalLM, allowed: TokenMask, prompt: str, max_tokens: int) -> None:
        super().__init__()
        self.context = LMContext(lm, prompt, temp=0.7)
        self.allowed = allowed
        self.ends = lm.masks.END_PUNCTUATION
        self.max_tokens = max_tokens

    async def step(self) -> None:
        await self.observe(self.context.mask_dist(self.allowed), True)
        token = await self.sample(self.context.next_token())
        if token in self.ends or self.context.token_count == self.max_tokens:
            self.finish()


def tokens_without_e(lm: CachedCausalLM) -> TokenMask:
    """Words and marks in plain letters, with at most one space before them, and without an e."""
    plain = re.compile(r" ?[a-df-zA-DF-Z,.!?'-]+")
    return lm.token_mask(i for i, text in enumerate(lm.vocab) if plain.fullmatch(text))


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Write a sentence without the letter e.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", default="On a cold night in a small town,")
    options = parser.parse_args(argv)

    lm = CachedCausalLM.from_pretrained(options.model)
    model = NoLetterE(lm, tokens_without_e(lm), options.prompt, options.max_tokens)
    particles = asyncio.run(smc_standard(model, options.n_particles, seed=options.seed))

    print(f"{options.prompt} ...\n")
    for text, probability in particles.posterior().items():
        print(f"{probability:8.1%}  ...{text}")
    print(f"\nlog marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    return particles


if __name__ == "__main__":
    main()
