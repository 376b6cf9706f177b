"""The `hfppl` command."""

from __future__ import annotations

import click

from hfppl.errors import HfpplError


@click.group(name="hfppl")
@click.version_option(package_name="hfppl", prog_name="hfppl")
def main() -> None:
    """Steer language models with sequential Monte Carlo."""


@main.command()
def fetch() -> None:
    """Fetch the default model into the cache and print its folder.

    The folder can be copied to the cache of a machine without network.
    """
    from hfppl.llms.default_model import default_model_path  # late, so that --help stays quick

    try:
        click.echo(default_model_path())
    except HfpplError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("record", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="The page; RECORD.html unless told otherwise."
)
@click.option("--open/--no-open", "open_it", default=True, help="Whether to open the page in a browser.")
def view(record: str, output: str | None, open_it: bool) -> None:
    """Draw the run that a driver wrote to RECORD, as one HTML page, and print where it is.

    RECORD is what a driver wrote with json_file or visualization_dir.
    """
    from hfppl.inference import SMCRecord
    from hfppl.viz import Picture

    try:
        picture = Picture(SMCRecord.load(record), output or f"{record}.html")
    except (HfpplError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(picture.path)
    if open_it and not picture.open():
        click.echo("no browser with a window was found here: open the page by hand", err=True)


if __name__ == "__main__":
    main()
