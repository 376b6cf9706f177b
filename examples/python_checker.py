"""The body of a Python function that Python itself can parse: a rule that is a Python function.

The idea: any function of the text is a rule. `Predicate(prefix, complete)` asks `prefix` about the text after
each token, and `complete` about the text at its end; the checker here is Python's own compiler. It is not
asked about 49,152 tokens a step but about the few that the language model would write. A regular expression
beside it (`&`) sees to what is quickly seen: the body is indented. The text ends where the next token would
leave the body (`end="boundary"`).

    python examples/python_checker.py --signature "def is_even(n):" --says "Tell whether n is even."
"""

import argparse
import codeop
import textwrap
import warnings

from hfppl import CachedCausalLM, Particles, steer_sync
from hfppl.constraints import Predicate, Regex

BODY = Regex(r"(\n+ {4,}[^\s#][^\n]*)+\n*")


def checker(code: str) -> Predicate:
    """What may follow `code`, the beginning of a function."""

    def can_go_on(text: str) -> bool:
        """Whether the lines that are whole parse, or would with more lines after them."""
        whole, line_break, _ = text.rpartition("\n")
        try:
            codeop.compile_command(code + whole + line_break, symbol="exec")
        except (SyntaxError, ValueError, OverflowError):
            return False
        return True

    def is_whole(text: str) -> bool:
        """Whether the lines parse as they stand."""
        try:
            compile(code + text, "text", "exec")
        except (SyntaxError, ValueError):
            return False
        return True

    return Predicate(can_go_on, is_whole)


def main(argv: list[str] | None = None) -> Particles:
    parser = argparse.ArgumentParser(description="Write the body of a Python function; it parses.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument("--n-particles", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--signature", default="def mean(numbers):", help="the function's first line")
    parser.add_argument("--says", default="Return the mean of some numbers.", help="what the function does")
    options = parser.parse_args(argv)
    code = f'{options.signature}\n    """{options.says}"""'
    warnings.simplefilter("ignore", SyntaxWarning)  # the compiler's opinion of `x is 0` and the like

    lm = CachedCausalLM.from_pretrained(options.model)
    particles = steer_sync(
        lm,
        code,
        BODY & checker(code),
        options.n_particles,
        options.max_tokens,
        temp=options.temperature,
        end="boundary",
        seed=options.seed,
    )

    for text, probability in list(particles.posterior().items())[:3]:
        print(f"{probability:.1%}\n\n{textwrap.indent(code + text, '    ')}")
    print(f"log marginal likelihood {particles.log_marginal_likelihood:.2f}, ESS {particles.ess:.1f}")
    if particles.n_dead:
        print(f"{particles.n_dead} of {len(particles)} came to the limit of tokens, or to a dead end")
    return particles


if __name__ == "__main__":
    main()
