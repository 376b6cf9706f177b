"""Who may import whom, held by reading the imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hfppl"

# A room, and the rooms it may import from besides itself and those that import nothing.
BASE = {"errors", "numerics", "logits", "sampling", "display"}
ROOMS: dict[str, set[str]] = {
    "tokens": set(),
    "turn": set(),
    "random": {"turn"},
    "copying": {"random"},
    "llms": {"tokens", "turn", "copying"},
    "distributions": {"llms", "tokens", "random", "turn"},
    "submodels": {"distributions"},
    "modeling": {"distributions", "turn", "copying", "submodels"},
    "chunks": {"distributions", "modeling"},
    "inference": {"random", "turn", "copying"},
    "constraints": {"tokens"},
    "guided": {"constraints", "distributions", "inference", "llms", "modeling", "random", "tokens", "turn"},
    "viz": {"inference"},
    "util": set(),
    "glyphs": set(),
    "plot": {"distributions", "inference", "llms", "glyphs"},
    "cli": {"llms"},
}
HEAVY = {"torch", "transformers", "safetensors", "gguf"}
# Files of the backends, where heavy libraries may be imported at the top: they are imported late.
BACKEND_FILES = {path.name for path in (PACKAGE / "llms").glob("*.py")} - {
    "__init__.py",
    "backend.py",
    "batching.py",
    "cache_folder.py",
    "cached_causal_lm.py",
    "dead.py",
    "default_model.py",
    "function.py",
    "loading.py",
    "mock.py",
    "prefix.py",
    "prompt.py",
    "row_cache.py",
    "row_source.py",
    "verdicts.py",
}

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[tuple[str, ...], bool]]:
    """Every import of a file as absolute module parts, and whether it runs when the file is imported."""
    tree = ast.parse(path.read_text())
    package = ("hfppl", *path.relative_to(PACKAGE).parent.parts)
    late = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test))
        for node in ast.walk(outer)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(tuple(alias.name.split(".")), id(node) not in late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *((node.module or "").split(".") if node.module else ()))
            if module == ("hfppl",):
                found += [((*module, alias.name), id(node) not in late) for alias in node.names]
            else:
                found.append((module, id(node) not in late))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_from_the_rooms_it_may(path: Path) -> None:
    here = room_of(path.relative_to(PACKAGE).parts)
    if here == "__init__":
        return
    allowed = BASE | {here} if here in BASE else BASE | {here} | ROOMS[here]
    if here in BASE:
        allowed = {"errors", "numerics", here}
    for module, at_import in imports(path):
        if module[0] == "hfppl" and len(module) > 1 and at_import:
            assert module[1] in allowed, f"{here} imports {'.'.join(module)}"
        if module[0] in HEAVY and at_import:
            assert path.parent.name == "llms", f"{path.name} imports {module[0]}"
            assert path.name in BACKEND_FILES, f"{path.name} imports {module[0]} at its top"


def test_importing_all_public_names_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'transformers', 'scipy'}"
    code = f"from hfppl import *; import sys; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_file_is_one_idea_long() -> None:
    lengths = {path.relative_to(PACKAGE): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: n for name, n in lengths.items() if n > 400}
