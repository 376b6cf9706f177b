"""The `hfppl` command."""

from __future__ import annotations

import json
import math
import secrets
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hfppl.errors import HfpplError

if TYPE_CHECKING:
    from hfppl import Particles
    from hfppl.constraints import Constraint

NO_TEXT = 3  # the exit status if no particle lived to the end
DEMO = [
    "--prompt",
    "On a cold night in a small town,",
    "--regex",
    r" [a-df-z ,']+\.",
    "--max-tokens",
    "25",
    "--temperature",
    "0.7",
    "--end",
    "boundary",
    "--seed",
    "1",
]


class OurErrors(click.Group):
    """A group of commands that tell the package's errors in a line, and leave with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except HfpplError as error:
            raise click.ClickException(str(error)) from error


@click.group(name="hfppl", cls=OurErrors)
@click.version_option(package_name="hfppl", prog_name="hfppl")
def main() -> None:
    """Steer language models with sequential Monte Carlo.

    Start with `hfppl demo`.
    """


@main.command()
def fetch() -> None:
    """Fetch the default model into the cache and print its folder.

    The folder can be copied to the cache of a machine without network.
    """
    from hfppl.llms.default_model import default_model_path  # late, so that --help stays quick

    click.echo(default_model_path())


@main.command()
@click.argument("record", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="The page; RECORD.html unless told otherwise."
)
@click.option("--open/--no-open", "open_it", default=True, help="Whether to open the page in a browser.")
def view(record: str, output: str | None, open_it: bool) -> None:
    """Draw the run that a driver wrote to RECORD, as one HTML page, and print where it is.

    RECORD is what a driver wrote with json_file or visualization_dir, or `hfppl sample` with --record.
    """
    from hfppl.inference import SMCRecord
    from hfppl.viz import Picture

    try:
        picture = Picture(SMCRecord.load(record), output or f"{record}.html")
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(picture.path)
    if open_it and not picture.open():
        click.echo("no browser with a window was found here: open the page by hand", err=True)


@main.command(epilog=f"Exit status: 0 if there are texts, {NO_TEXT} if no particle lived to the end, 1 on an "
              "error, 2 if the command was not understood.")  # fmt: skip
@click.option("--prompt", required=True, help="What the text goes on from; - reads it from standard input.")
@click.option("--chat", is_flag=True, help="The prompt is what a user says, put into the model's template.")
@click.option("--regex", metavar="PATTERN", help="The text matches, as a whole.")
@click.option("--json-schema", metavar="FILE", help="The text is JSON of this schema: a file, or the JSON.")
@click.option(
    "--lark",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The text follows a grammar in Lark's notation.",
)
@click.option("--choice", metavar="TEXT", multiple=True, help="The text is this, or another --choice.")
@click.option("--model", help="A hub id or a local folder; the default model if left out.")
@click.option("-n", "--n-particles", type=click.IntRange(1), default=20, show_default=True)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="A text that is longer does not count.",
)
@click.option(
    "--temperature", type=click.FloatRange(1e-6, 1e6), default=1.0, show_default=True, metavar="FLOAT"
)
@click.option(
    "--end",
    type=click.Choice(["eos", "boundary"]),
    default="eos",
    show_default=True,
    help="A text ends with an end token, or where the next token would not go on with it.",
)
@click.option(
    "--seed", type=click.IntRange(0), help="The same seed gives the same texts; a new one if left out."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--record", type=click.Path(dir_okay=False), help="Write the run to this file, for `hfppl view`."
)
@click.option(
    "--progress/--no-progress", default=None, help="Show the run on standard error; left out: in a terminal."
)
def sample(
    prompt: str,
    chat: bool,
    regex: str | None,
    json_schema: str | None,
    lark: str | None,
    choice: tuple[str, ...],
    model: str | None,
    seed: int | None,
    as_json: bool,
    record: str | None,
    **options: Any,
) -> None:
    """Write texts that obey a rule, and print each with its probability.

    The rule is one of --regex, --json-schema, --lark and --choice, or all that are given. What is sampled is
    the model's own distribution over texts, given the rule: nothing is only masked.

    \b
        hfppl sample --prompt "The capital of France is" --choice " Paris" --choice " Lyon" --end boundary
        hfppl sample --chat --prompt "When was the telephone invented?" --regex "1[789]\\d\\d" --seed 1
        hfppl sample --prompt "A person, as JSON: " --json-schema person.json --json | jq .texts[0]

    log Z is the logarithm of the probability that the model obeys the rule unasked; ESS says how many of the
    particles count.
    """
    from hfppl import CachedCausalLM, steer_sync

    rule = _rule(regex, json_schema, lark, choice)
    seed = secrets.randbits(32) if seed is None else seed
    if prompt == "-":
        prompt = sys.stdin.read()
    if options["progress"] or (options["progress"] is None and sys.stderr.isatty()):
        click.echo(f"loading {model or 'the default model'}", err=True)
    lm = CachedCausalLM.from_pretrained(model)
    particles = steer_sync(
        lm,
        [{"role": "user", "content": prompt}] if chat else prompt,
        rule,
        options.pop("n_particles"),
        temp=options.pop("temperature"),
        seed=seed,
        json_file=record,
        **options,
    )
    if as_json:
        click.echo(json.dumps(_summary(particles, seed), ensure_ascii=False, allow_nan=False))
    else:
        _print_texts(_summary(particles, seed))
    if particles.n_dead == len(particles):
        click.echo("no text: every particle came to a dead end or to --max-tokens; try a higher -n", err=True)
        sys.exit(NO_TEXT)


@main.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Write half a sentence without the letter e, and show the command that does it."""
    click.echo(f"$ hfppl sample {shlex.join(DEMO)}\n")
    sample.main(DEMO, prog_name="hfppl sample", standalone_mode=False)


def _rule(
    regex: str | None, json_schema: str | None, lark: str | None, choices: tuple[str, ...]
) -> Constraint:
    """What the options say, all of it together."""
    from hfppl.constraints import And, Choice, JsonSchema, Lark, Regex

    rules: list[Constraint] = []
    if regex is not None:
        rules.append(Regex(regex))
    if json_schema is not None:
        rules.append(JsonSchema(_text_of("--json-schema", json_schema)))
    if lark is not None:
        rules.append(Lark(_text_of("--lark", lark)))
    if choices:
        rules.append(Choice(choices))
    if not rules:
        raise click.UsageError("there is no rule: give --regex, --json-schema, --lark or --choice")
    return And(*rules) if len(rules) > 1 else rules[0]


def _text_of(option: str, given: str) -> str:
    """What is in a file; a JSON schema may also be given as it is."""
    if given.lstrip().startswith("{") or given.strip() in ("true", "false"):
        return given
    try:
        return Path(given).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"cannot read {given!r}: {error}", param_hint=option) from error


def _summary(particles: Particles, seed: int) -> dict[str, Any]:
    """The result as JSON values; log Z is null if no particle lived."""
    log_z = particles.log_marginal_likelihood
    posterior = particles.posterior() if particles.n_dead < len(particles) else {}
    return {
        "texts": [{"text": text, "probability": p} for text, p in posterior.items()],
        "log_marginal_likelihood": log_z if math.isfinite(log_z) else None,
        "ess": particles.ess,
        "seed": seed,
        "n_particles": len(particles),
        "n_dead": particles.n_dead,
    }


def _print_texts(found: dict[str, Any]) -> None:
    """A table for reading."""
    for entry in found["texts"]:
        first, *rest = entry["text"].split("\n")
        click.echo(f"{entry['probability']:8.4f}  {first}")
        for line in rest:
            click.echo(f"{'':10}{line}")
    log_z = found["log_marginal_likelihood"]
    click.echo(
        f"\nlog Z {'-inf' if log_z is None else f'{log_z:.3f}'}, ESS {found['ess']:.1f} of "
        f"{found['n_particles']} particles" + (f", {found['n_dead']} dead" if found["n_dead"] else "")
    )


if __name__ == "__main__":
    main()
