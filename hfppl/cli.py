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


if __name__ == "__main__":
    main()
