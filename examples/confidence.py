"""How sure a language model is: the next token with and without a rule, nothing sampled.

The idea: `next_token_logits(prompt, constraint=...)` returns the model's own logits, with what the rule does
not allow at -inf. The odds of what is left are the model's own, so "True" against "False" is a confidence,
however little of the whole distribution the two of them have.

    python examples/confidence.py --statement "The sun is a star."
"""

import argparse

import numpy as np

from hfppl import CachedCausalLM, softmax
from hfppl.constraints import Choice, Constraint, Regex

OCTET = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IP_ADDRESS = Regex(rf"({OCTET}\.){{3}}{OCTET}")
QUESTION = "What is the IP address of localhost?"


def confidence(lm: CachedCausalLM, statement: str) -> float:
    """The probability of the answer True, given that the answer is True or False."""
    prompt = chat(f"True or False? {statement}")
    probabilities = softmax(lm.next_token_logits_unbatched(prompt, Choice(["True", "False"])))
    # The first token may be a part of its word: the first letter tells which it is.
    true = sum(probabilities[i] for i in np.flatnonzero(probabilities) if lm.str_vocab[i][0] == "T")
    return float(true)


def chat(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def likeliest(lm: CachedCausalLM, question: str, constraint: Constraint | None) -> list[tuple[str, float]]:
    """The five likeliest first tokens of an answer, and their probabilities."""
    probabilities = softmax(lm.next_token_logits_unbatched(chat(question), constraint))
    best = np.argsort(-probabilities)[:5]
    return [(lm.str_vocab[i], float(probabilities[i])) for i in best if probabilities[i] > 0]


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description="See how sure a language model is of an answer.")
    parser.add_argument("--model", help="hub id or local folder; the default model if left out")
    parser.add_argument(
        "--statement", action="append", help="may be given several times; three of our own if left out"
    )
    options = parser.parse_args(argv)
    statements = options.statement or [
        "Paris is the capital of France.",
        "Paris is the capital of Italy.",
        "Two and two make five.",
    ]

    lm = CachedCausalLM.from_pretrained(options.model)
    found = {statement: confidence(lm, statement) for statement in statements}
    for statement, p in found.items():
        print(f"True with {p:6.1%}  {statement}")

    print(f"\n{QUESTION}\n")
    for title, constraint in (("any answer", None), ("an IP address", IP_ADDRESS)):
        tokens = [f"{text!r} {p:.1%}" for text, p in likeliest(lm, QUESTION, constraint)]
        print(f"{title:>14}: {', '.join(tokens)}")
    return found


if __name__ == "__main__":
    main()
