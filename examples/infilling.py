"""A sentence with gaps, filled in.

The idea: the model knows more than the next token. Each step draws the length of a gap, fills the gap
freely, and then *observes* the given words that follow it, token by token. A filling that leads nowhere makes
these words unlikely, and its particle light; the population leans towards fillings that lead to them. At the
end the model observes that the text is over, so that the whole reads as one sentence.

The given words are observed in their usual tokens. The first of them are forced (`intervene`) in `start()`,
which runs once in each particle: nothing precedes them that could be judged by them.

    python examples/infilling.py --text "Every night the old fisherman [] to the sea, and the sea []."
"""

import argparse
import asyncio

from hfppl import CachedCausalLM, Geometric, LMContext, Model, Particles, smc_standard

GAP = "[]"
QUESTION = [{"role": "user", "content": "Tell me a very short story, in one sentence."}]


class Infilling(Model):
    """A text in which every gap is at least one token long."""

    def __init__(self, lm: CachedCausalLM, text: str, mean_length: float = 3.0) -> None:
        super().__init__()
        self.context = LMContext(lm, QUESTION, temp=0.8, show_eos=False)
        # A word brings the space before it; the space before a gap belongs to the gap.
        parts = [lm.tokenizer.encode(part.rstrip(), add_special_tokens=False) for part in text.split(GAP)]
        self.opening, self.parts = parts[0], parts[1:]
        self.length = Geometric(1 / mean_length)
        whole = (i for i, text in enumerate(lm.vocab) if text.isprintable() and "\ufffd" not in text)
        self.filling = lm.token_mask(whole)
        self.filling -= lm.masks.special | lm.masks.END_PUNCTUATION
        # The word before a gap is whole: nothing in the gap goes on with it.
        goes_on = (i for i, text in enumerate(lm.vocab) if text[:1].isalnum() or text[:1] in "'’")
        self.begins = self.filling - lm.token_mask(goes_on)

    async def start(self) -> None:
        for token_id in self.opening:
            await self.intervene(self.context.next_token(), token_id)

    async def step(self) -> None:
        allowed = self.begins if self.context.token_count else self.filling
        for _ in range(await self.sample(self.length)):
            await self.observe(self.context.mask_dist(allowed), True)
            await self.sample(self.context.next_token())
            allowed = self.filling
        for token_id in self.parts.pop(0):
            await self.observe(self.context.next_token(), token_id)
        if not self.parts:
            await self.observe(self.context.mask_dist(self.context.lm.masks.EOS), True)
            self.finish()


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description=f"Fill the gaps, written {GAP}, of a text.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", default="One morning the baker [] a cat [] the moon.")
    options = parser.parse_args(argv)
    if GAP not in options.text:
        parser.error(f"the text has no gap: write {GAP} where something is to be filled in")

    lm = CachedCausalLM.from_pretrained(options.model)
    model = Infilling(lm, options.text)
    particles = asyncio.run(smc_standard(model, options.n_particles, seed=options.seed))

    print(f"{options.text}\n")
    for text, probability in list(particles.posterior().items())[:8]:
        print(f"{probability:8.1%}  {text}")
    print(f"\nlog marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    return particles


if __name__ == "__main__":
    main()
