"""A news story in which every word has at most five letters.

The idea: two contexts. `context` is the language model as it is, the target. `q` is the same model with
the rule forced upon it, the proposal. Tokens are drawn from `q`, so no particle breaks the rule;
`sample(..., proposal=...)` corrects the weight by the ratio of the two probabilities, so that what comes out
is the target, conditioned on the rule. Without that ratio, a text would pay nothing for starting a word
that it cannot end (" gov", and then no room for "ernment").

A word is a run of letters and apostrophes, of which the letters count; a hyphen separates words. Digits are
left out, since most numbers, read aloud, break the rule; so are line breaks and rarer marks. The text may
end at any time, and otherwise breaks off after a whole word.

    python examples/hard_constraints.py --n-particles 20 --max-tokens 30
"""

import argparse
import asyncio
import math
import re
import textwrap
import time

import numpy as np

from hfppl import CachedCausalLM, LMContext, Model, Particles, TokenMask, smc_standard

MAX_LETTERS = 5
PROMPT = (
    "The storm that hit our small town on Friday night left the old port under water. By dawn the wind had "
    "torn the roof off the fish market, and two boats lay on their side in the main street. The last ferry "
    "could not land, and spent nine hours at sea with sixty people on board. No one was hurt, but it will "
    "take weeks to clear the mud. \"We have seen worse here,\" the mayor told the crowd in front of the town "
    "hall, \"and we know what to do. First of all, we will"
)  # fmt: skip

WIDTH = 100
WORD = re.compile(r"(?:[^\W\d_]|['’])+")
LAST_WORD = re.compile(rf"{WORD.pattern}\Z")
PLAIN = re.compile(r""" ?(?:[^\W\d_]|[.,;:!?'"()‘’“”–—-])+""")


class Rule:
    """Which tokens may come next, for each number of letters that the current word has already."""

    def __init__(self, lm: CachedCausalLM) -> None:
        plain = np.array([PLAIN.fullmatch(text) is not None for text in lm.vocab])
        # Letters that go on with the current word, and letters of the longest word in the token.
        first = np.array([letters(word[0]) if (word := WORD.match(text)) else 0 for text in lm.vocab])
        longest = np.array([max(map(letters, WORD.findall(text)), default=0) for text in lm.vocab])
        fits = plain & (longest <= MAX_LETTERS) & ~lm.masks.special.allowed
        self.masks = [
            lm.token_mask(fits & (n_letters + first <= MAX_LETTERS)) | lm.masks.EOS
            for n_letters in range(MAX_LETTERS + 1)
        ]
        self.ends_word = ~lm.token_mask(i for i, text in enumerate(lm.vocab) if WORD.match(text))

    def after(self, text: str) -> TokenMask:
        """The mask for the token that follows `text`."""
        current = LAST_WORD.search(text)
        return self.masks[min(letters(current[0]), MAX_LETTERS) if current else 0]


def letters(word: str) -> int:
    """How many letters a word has."""
    return sum(c.isalpha() for c in word)


class ShortWords(Model):
    """At most `max_tokens` tokens that go on with the prompt and obey the rule."""

    def __init__(self, lm: CachedCausalLM, rule: Rule, prompt: str, max_tokens: int) -> None:
        super().__init__()
        self.context = LMContext(lm, prompt, temp=0.7, show_eos=False)
        self.q = LMContext(lm, prompt, temp=0.7)
        self.rule = rule
        self.prompt = prompt
        self.max_tokens = max_tokens

    def immutable_properties(self) -> set[str]:
        return {"rule"}  # the copies of a particle share it

    async def step(self) -> None:
        allowed = self.rule.after(self.prompt + str(self.context))
        await self.intervene(self.q.mask_dist(allowed), True)
        token = await self.sample(self.context.next_token(), proposal=self.q.next_token())
        self.condition(token in allowed)

        if token in self.context.lm.masks.EOS:
            self.finish()
        elif self.context.token_count == self.max_tokens:
            await self.observe(self.context.mask_dist(self.rule.ends_word), True)
            self.finish()


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description=f"Write with words of at most {MAX_LETTERS} letters.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=30)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--prompt", default=PROMPT)
    options = parser.parse_args(argv)

    began = time.perf_counter()
    lm = CachedCausalLM.from_pretrained(options.model)
    loaded = time.perf_counter()
    rule = Rule(lm)
    ruled = time.perf_counter()
    print(f"Every word has at most {MAX_LETTERS} letters, after this prompt:\n")
    print(textwrap.indent(textwrap.fill(f"{options.prompt} ...", WIDTH - 4), "    "), flush=True)
    model = ShortWords(lm, rule, options.prompt, options.max_tokens)
    particles = asyncio.run(smc_standard(model, options.n_particles, seed=options.seed))
    took = time.perf_counter() - ruled

    show(particles)
    n_tokens = sum(particle.context.token_count for particle in particles)
    print(f"  loading    {loaded - began:5.1f} s   {options.model or 'the default model'}")
    print(f"  masks      {ruled - loaded:5.1f} s   {len(rule.masks) + 1} masks of {lm.vocab_size} tokens")
    print(f"  inference  {took:5.1f} s   {n_tokens} tokens, {n_tokens / took:.0f} a second")
    return particles


def show(particles: Particles) -> None:
    print(f"\nThe {len(particles)} particles, heaviest first: share of the weight, log-weight, text\n")
    for i in np.argsort(-particles.log_weights, kind="stable"):
        share, log_weight = particles.normalized_weights[i], particles.log_weights[i]
        entry(f"{share:7.1%} {log_weight:8.2f}  ", str(particles[i]))
    posterior = list(particles.posterior().items())
    print(f"\nThe posterior's head, of {len(posterior)} different texts\n")
    for text, probability in posterior[:3]:
        entry(f"{probability:7.1%}  ", text)
    log_z = particles.log_marginal_likelihood
    print(f"\n  log marginal likelihood  {log_z:.2f}, so a text obeys unasked with p = {math.exp(log_z):.2g}")
    print(f"  effective sample size    {particles.ess:.1f} of {len(particles)}\n")


def entry(label: str, text: str) -> None:
    print(textwrap.fill(f"...{text}", WIDTH, initial_indent=label, subsequent_indent=" " * len(label)))


if __name__ == "__main__":
    main()
