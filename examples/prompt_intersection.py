"""One continuation of two prompts at once.

The idea: a model may hold several contexts. The continuation is *sampled* in one and *observed* in the other,
so a text comes out in proportion to the product of the two probabilities: it has to make sense after both
prompts. What fits one of them only is drawn, weighed and then dropped by resampling.

    python examples/prompt_intersection.py --prompts "A good soup is" "A happy life is"
"""

import argparse
import asyncio

from hfppl import CachedCausalLM, LMContext, Model, Particles, smc_standard

PROMPTS = ("The sea teaches us", "Old age teaches us")


class BothPrompts(Model):
    """A sentence's end that is likely after the first prompt and after the second."""

    def __init__(self, lm: CachedCausalLM, prompts: tuple[str, str], max_tokens: int) -> None:
        super().__init__()
        self.first = LMContext(lm, prompts[0], temp=0.8, show_eos=False)
        self.second = LMContext(lm, prompts[1], temp=0.8, show_eos=False)
        self.ends = lm.masks.END_PUNCTUATION | lm.masks.EOS
        self.max_tokens = max_tokens

    async def step(self) -> None:
        token = await self.sample(self.first.next_token())
        await self.observe(self.second.next_token(), token)
        if token in self.ends or self.first.token_count == self.max_tokens:
            self.finish()


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Continue two prompts with one text.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", nargs=2, metavar="PROMPT", default=PROMPTS)
    options = parser.parse_args(argv)

    lm = CachedCausalLM.from_pretrained(options.model)
    model = BothPrompts(lm, options.prompts, options.max_tokens)
    particles = asyncio.run(smc_standard(model, options.n_particles, seed=options.seed))

    print(*(f"{prompt} ..." for prompt in options.prompts), "", sep="\n")
    for text, probability in particles.posterior().items():
        print(f"{probability:8.1%}  ...{text}")
    print(f"\nlog marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    return particles


if __name__ == "__main__":
    main()
