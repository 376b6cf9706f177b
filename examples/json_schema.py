"""Objects of a JSON schema, in one call.

The idea: `steer` needs no model class. The schema says what a text must be, every way of splitting the text
into tokens stays open, and the weights undo what the mask of a schema distorts: of two objects that both
satisfy it, the likelier one under the language model comes out more often.

    python examples/json_schema.py --prompt "A knight of the round table, as JSON:"
"""

import argparse
import json

from hfppl import CachedCausalLM, Particles, steer_sync
from hfppl.constraints import JsonSchema

COLOURS = ["red", "green", "blue"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colours": {"type": "array", "items": {"enum": COLOURS}, "maxItems": 3},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Write objects that satisfy a JSON schema.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompt", default="A person, as JSON, with name, age and favourite colours:\n")
    options = parser.parse_args(argv)

    lm = CachedCausalLM.from_pretrained(options.model)
    particles = steer_sync(
        lm,
        options.prompt,
        JsonSchema(SCHEMA, max_blanks=1),
        options.n_particles,
        options.max_tokens,
        temp=options.temperature,
        seed=options.seed,
    )

    print(options.prompt)
    for text, probability in particles.posterior().items():
        person = json.loads(text)
        print(f"{probability:8.1%}  {person['name']!r:24} {person['age']:3}  {', '.join(person['colours'])}")
    print(f"\nlog marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    if particles.n_dead:
        print(f"{particles.n_dead} of {len(particles)} came to the limit of tokens, or to a dead end")
    return particles


if __name__ == "__main__":
    main()
