"""The documentation: its Python runs, prints what it shows, and builds without a complaint.

A page is run from top to bottom in one namespace. A `text` block right after a `python` block is what that
prints, to the letter. One with a title is an example of it: what a real language model draws may differ from
machine to machine, so numbers and quoted texts may be others there. `py` blocks are other libraries' code.
"""

import ast
import asyncio
import contextlib
import functools
import importlib
import inspect
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import hfppl.cli
from hfppl import CachedCausalLM

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ELSEWHERE = "coming-from.md"  # the page that shows other libraries

FENCE = re.compile(r"^( *)```(?: *)([^\n`]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r'\s*^( *)```text( title="[^"]+")?\n(.*?)^\1```[ ]*$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A piece of Python on a page, and what the page says that it prints."""

    line: int
    code: str
    shown: str | None
    is_example: bool


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match[2] != "python":
            continue
        shown = SHOWN.match(text, match.end())
        line = text.count("\n", 0, match.start(3)) + 1
        code = unindented(match[3], match[1])
        if shown is None:
            yield Block(line, code, None, False)
        else:
            yield Block(line, code, unindented(shown[3], shown[1]), shown[2] is not None)


def unindented(text: str, indent: str) -> str:
    """The text of a fence that is indented, as under a tab."""
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def needs_model(page: Path) -> bool:
    return any("from_pretrained(" in block.code for block in blocks(page))


def named(page: Path) -> str:
    return str(page.relative_to(DOCS))


RUN = [
    pytest.param(page, id=named(page), marks=[pytest.mark.model] if needs_model(page) else [])
    for page in PAGES
    if any(blocks(page))
]


@pytest.fixture(autouse=True, scope="module")
def each_language_model_is_loaded_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedCausalLM, "from_pretrained", functools.cache(CachedCausalLM.from_pretrained))
        yield


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(
    page: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for block, printed in run(page):
        if block.shown is None:
            assert printed == "", f"{named(page)}:{block.line} prints what the page does not show"
        elif block.is_example:
            assert shape(printed) == shape(block.shown), f"{named(page)}:{block.line}"
        else:
            assert lines(printed) == lines(block.shown), f"{named(page)}:{block.line}"


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Every block of a page with what it printed; blocks that await share an event loop."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(page):
            source = "\n" * (block.line - 1) + block.code
            code = compile(source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                if code.co_flags & inspect.CO_COROUTINE:
                    runner.run(eval(code, names))
                else:
                    exec(code, names)
            yield block, printed.getvalue()


def lines(printed: str) -> list[str]:
    """The lines, whatever blanks stand at their ends."""
    return [line.rstrip() for line in printed.strip("\n").splitlines()]


def shape(printed: str) -> set[str]:
    """The kinds of lines there are, numbers and quoted texts left out."""
    quoted = r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""
    return {
        re.sub(r"\d+(?:\.\d+)?", "#", re.sub(quoted, "'...'", line)).strip()
        for line in printed.splitlines()
        if line.strip()
    }


def test_what_a_page_shows_belongs_to_code() -> None:
    """A `text` block that stands alone would be checked by nobody."""
    for page in PAGES:
        n_shown = sum(
            match[2].startswith("text") for match in FENCE.finditer(page.read_text(encoding="utf-8"))
        )
        assert n_shown == sum(block.shown is not None for block in blocks(page)), named(page)


def test_every_block_says_what_it_is() -> None:
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            kind = match[2].split(" ")[0]
            assert kind in {"python", "text", "sh", "toml", "json"} or (kind, page.name) == ("py", ELSEWHERE)
            if kind == "py":
                compile(unindented(match[3], match[1]), named(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_command_is_called_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[2] == "sh":
                calls += re.findall(r"^hfppl (\w+) ?([^<\n]*)", unindented(match[3], match[1]), re.MULTILINE)
    assert len(calls) > 5
    for name, arguments in calls:
        command = hfppl.cli.main.commands[name]
        given = shlex.split(arguments)
        for parameter in command.params:  # files that the reader has, and we do not
            if isinstance(parameter.type, click.Path):
                monkeypatch.setattr(parameter.type, "exists", False)
        command.make_context(name, given)


def test_the_site_builds_without_a_complaint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)  # and the page for what is not found
    loaded = [url for page in pages for url in loaded_by(page.read_text(encoding="utf-8"))]
    assert any(url.endswith(".css") for url in loaded)
    assert any(url.endswith(".js") for url in loaded)
    assert [
        url for url in loaded if re.match(r"(?:[a-z]+:)?//", url)
    ] == []  # all of it lies beside the pages


def loaded_by(html: str) -> list[str]:
    """What a page loads by itself: scripts, pictures, frames, style sheets."""
    loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*?\bsrc=[\"']?([^\"'\s>]+)", html)
    sheets = r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preconnect))[^>]*?\bhref=[\"']?([^\"'\s>]+)"
    return [*loaded, *re.findall(sheets, html)]


@pytest.mark.parametrize("name", ["hfppl", "hfppl.constraints", "hfppl.guided", "hfppl.inference"])
def test_the_reference_names_everything_that_is_public(name: str) -> None:
    told = [value for page in (DOCS / "reference").glob("*.md") for value in described_on(page)]
    module = importlib.import_module(name)
    missing = [
        public for public in module.__all__ if not any(getattr(module, public) is value for value in told)
    ]
    assert missing == []


def test_the_reference_names_the_modules_of_functions() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    for name in ("hfppl.sampling", "hfppl.plot", "hfppl.errors", "hfppl.inference.resampling"):
        assert f"\n::: {name}\n" in pages


def described_on(page: Path) -> Iterator[Any]:
    """What a page of the reference describes; a module's public contents one by one."""
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        value = resolve(name)
        if inspect.ismodule(value):
            yield from (member for member_name, member in vars(value).items() if member_name[0] != "_")
        else:
            yield value


def resolve(name: str) -> Any:
    """The module, or the attribute of one, that has a dotted name."""
    home, _, attribute = name.rpartition(".")
    module = importlib.import_module(home or name)
    return getattr(module, attribute, None) or importlib.import_module(name)
