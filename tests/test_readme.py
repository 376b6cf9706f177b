"""The README: what it says can be done, can be done."""

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

import hfppl
from hfppl.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", README, re.DOTALL)


def test_the_model_has_fifteen_lines() -> None:
    lines = [line for line in PYTHON[0].splitlines() if line.strip()]
    assert len(lines) == 15


def test_the_names_it_tells_of_exist() -> None:
    for block in PYTHON:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "hfppl":
                assert {alias.name for alias in node.names} <= set(hfppl.__all__)
    rows = re.findall(r"^\| (`.*?) \|", README, re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(names) > 10
    assert names <= set(hfppl.__all__)


def test_the_commands_it_tells_of_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    told = set(re.findall(r"\bmake ([a-z-]+)(?=[`\s])", "\n".join(commands())))
    assert {"demo", "test"} <= told <= targets
    assert set(re.findall(r"\bhfppl ([a-z-]+)", "\n".join(commands()))) <= set(main.commands)


def test_the_files_it_tells_of_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    scripts = re.findall(r"\bpython ([\w/.]+\.py)", "\n".join(commands()))
    assert len(links) >= 6
    assert scripts
    for name in [*links, *scripts]:
        assert (ROOT / name).is_file(), name
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert {Path(link).name for link in links if link.startswith("examples/")} == examples


def test_what_it_shows_is_what_the_model_prints() -> None:
    check_printed(SHOWN[0])


@pytest.mark.model
def test_its_model_runs() -> None:
    names = {"__name__": "__main__"}
    printed = []
    for block in PYTHON:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block, "README.md", "exec"), names)
        printed.append(output.getvalue())
    assert printed[0] == ""
    check_printed(printed[1])
    for shown in (printed[2], SHOWN[1]):
        assert re.match(r"20 particles, ESS [\d.]+, log Z -[\d.]+", shown)
        years = re.findall(r"^   \d\.\d{4}  '(.*)'$", shown, re.MULTILINE)
        assert len(years) >= 3
        assert all(re.fullmatch(r"1[789]\d\d", year) for year in years)


def commands() -> list[str]:
    """What the README sets as code, the Python aside."""
    rest = re.sub(r"```python\n.*?```", "", README, flags=re.DOTALL)
    fenced = re.findall(r"```\n(.*?)```", rest, re.DOTALL)
    return [*fenced, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", rest, flags=re.DOTALL))]


def check_printed(printed: str) -> None:
    """A population of twenty, and texts without an e, the likeliest first."""
    first, *rest = printed.strip().splitlines()
    assert re.fullmatch(r"20 particles, ESS [\d.]+, log Z -[\d.]+(?: ± [\d.]+)?", first), first
    rows = [re.fullmatch(r"  +([\d.]+)  (['\"])(.*)\2", line) for line in rest]
    assert rows
    assert all(rows), rest
    shares = [float(row[1]) for row in rows if row]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)
    assert not any("e" in row[3].lower() for row in rows if row)
