"""The command line, run in this process and, to see what it loads, in one of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from hfppl.cli import main
from hfppl.errors import ModelUnavailableError
from hfppl.llms import default_model


def test_fetch_prints_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "default_model_path", lambda: Path("/cache/model"))
    result = CliRunner().invoke(main, ["fetch"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{Path('/cache/model')}\n", "")


def test_fetch_tells_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise ModelUnavailableError("no network: set HFPPL_CACHE_DIR")

    monkeypatch.setattr(default_model, "default_model_path", fail)
    result = CliRunner().invoke(main, ["fetch"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: no network: set HFPPL_CACHE_DIR\n"


def test_an_error_that_is_not_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise ZeroDivisionError

    monkeypatch.setattr(default_model, "default_model_path", fail)
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(main, ["fetch"], catch_exceptions=False)


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"hfppl, version {version('hfppl')}\n")


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert re.search(r"fetch +Fetch the default model", result.stdout)


def test_the_command_starts_without_torch() -> None:
    code = "import sys, hfppl.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
