"""The public names, and the import paths that scripts of this family use."""

import ast
import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

import hfppl


def test_all_is_what_is_there() -> None:
    assert hfppl.__all__ == sorted(hfppl.__all__)
    assert [name for name in hfppl.__all__ if isinstance(getattr(hfppl, name), types.ModuleType)] == []
    with pytest.raises(AttributeError):
        hfppl.nothing  # noqa: B018


def test_type_checkers_are_told_of_the_same_names() -> None:
    stub = ast.parse(Path(hfppl.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    (told,) = (
        ast.literal_eval(node.value)
        for node in stub.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert told == hfppl.__all__


def test_importing_it_loads_next_to_nothing() -> None:
    code = "import sys, hfppl; print(sorted({'numpy', 'scipy', 'torch', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_its_rooms_are_there_unasked() -> None:
    code = "import hfppl; hfppl.inference.smc_standard; hfppl.constraints.Regex; hfppl.sampling.generate"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("hfppl.modeling", ["Model", "SubModel", "submodel"]),
        ("hfppl.llms", ["CachedCausalLM", "Masks", "Token", "TokenSequence"]),
        ("hfppl.util", ["log_softmax", "logsumexp", "softmax"]),
        ("hfppl.chunks", ["sample_word", "sample_word_2"]),
        ("hfppl.distributions", ["Bernoulli", "Geometric", "LogCategorical", "StatefulLM", "Transformer"]),
        ("hfppl.distributions.lmcontext", ["LMContext", "LMNextToken", "LMTokenMask"]),
        ("hfppl.distributions.distribution", ["Distribution"]),
        ("hfppl.inference", ["smc_standard", "smc_steer"]),
        ("hfppl.inference.smc_standard", ["smc_standard"]),
        ("hfppl.inference.smc_steer", ["smc_steer"]),
        ("hfppl.inference.smc_record", ["SMCRecord"]),
        ("hfppl.inference.resampling", ["RESAMPLING_METHODS", "get_resampling_fn", "systematic_resample"]),
    ],
)
def test_historical_paths(module: str, names: list[str]) -> None:
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


def test_functions_are_not_hidden_by_modules_of_their_name() -> None:
    importlib.import_module("hfppl.inference.smc_standard")
    importlib.import_module("hfppl.inference.smc_steer")
    from hfppl.inference import smc_standard, smc_steer

    assert callable(smc_standard)
    assert callable(smc_steer)
    assert hfppl.smc_standard is smc_standard


def test_every_public_name_is_documented() -> None:
    missing = [name for name in hfppl.__all__ if not (getattr(hfppl, name).__doc__ or "").strip()]
    assert missing == []


def test_the_old_name_of_a_context() -> None:
    assert hfppl.StatefulLM is hfppl.LMContext
