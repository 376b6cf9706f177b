"""The command line, run in this process and, to see what it loads, in one of its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hfppl import CachedCausalLM, SMCRecord, steer_sync
from hfppl.cli import main
from hfppl.constraints import Regex
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


# --- sample


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language model of a few tokens in the place of the default one."""
    vocab = ["yes", "no", "{", "}", '"a"', ":", "1", "\n", "<end>"]
    lm = CachedCausalLM.from_function(
        vocab, lambda ids: [-0.2 * i for i in range(len(vocab))], eos_token_ids=[8]
    )

    def from_pretrained(name: str | None) -> CachedCausalLM:
        if name is not None:
            raise ModelUnavailableError(f"there is no {name}")
        return lm

    monkeypatch.setattr(CachedCausalLM, "from_pretrained", from_pretrained)


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sample", *arguments], input=text)


@pytest.mark.usefixtures("no_model")
def test_sample_prints_texts_and_their_probabilities() -> None:
    result = run("--prompt", "yes", "--choice", "yes", "--choice", "{\n}", "-n", "500", "--seed", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    texts = r" +0\.\d{4}  yes\n +0\.\d{4}  {\n {10}}\n"
    numbers = r"\nlog Z -\d\.\d+, ESS [\d.]+ of 500 particles(, \d+ dead)?\n"
    assert re.fullmatch(texts + numbers, result.stdout)


@pytest.mark.usefixtures("no_model")
def test_sample_as_json_is_what_the_same_call_gives() -> None:
    arguments = [
        "--regex",
        "(yes|no)*",
        "-n",
        "50",
        "--max-tokens",
        "5",
        "--temperature",
        "0.5",
        "--seed",
        "7",
    ]
    result = run("--prompt", "no", "--json", *arguments)
    lm = CachedCausalLM.from_pretrained(None)
    particles = steer_sync(lm, "no", Regex("(yes|no)*"), 50, 5, temp=0.5, seed=7)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "texts": [{"text": text, "probability": p} for text, p in particles.posterior().items()],
        "log_marginal_likelihood": particles.log_marginal_likelihood,
        "ess": particles.ess,
        "seed": 7,
        "n_particles": 50,
        "n_dead": particles.n_dead,
    }


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("as_file", [False, True])
def test_sample_takes_a_schema(tmp_path: Path, as_file: bool) -> None:
    schema = '{"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": false}'
    if as_file:
        (tmp_path / "schema.json").write_text(schema)
        schema = str(tmp_path / "schema.json")
    found = json.loads(
        run("--prompt", "yes", "--json-schema", schema, "-n", "2000", "--seed", "1", "--json").stdout
    )
    assert {entry["text"] for entry in found["texts"]} >= {"{}", '{"a":1}'}


@pytest.mark.usefixtures("no_model")
def test_sample_takes_all_rules_together_and_a_prompt_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "rule.lark").write_text('start: "yes"? "no" | "yes"')
    arguments = ["--lark", str(tmp_path / "rule.lark"), "--regex", "(yes)*no", "--json", "-n", "300"]
    arguments += ["--seed", "1"]
    found = json.loads(run("--prompt", "-", *arguments, text="yesyes").stdout)
    assert {entry["text"] for entry in found["texts"]} == {"no", "yesno"}


@pytest.mark.usefixtures("no_model")
def test_sample_without_a_text_has_a_status_of_its_own() -> None:
    arguments = ["--prompt", "no", "--regex", "yesyesyes", "--max-tokens", "2"]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (3, "\nlog Z -inf, ESS 0.0 of 20 particles, 20 dead\n")
    assert "no text: every particle" in result.stderr
    found = json.loads(run(*arguments, "--json").stdout)
    assert (found["texts"], found["log_marginal_likelihood"]) == ([], None)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--regex", "a"], 2, "Missing option '--prompt'"),
        (["--prompt", "no"], 2, "there is no rule: give --regex"),
        (["--prompt", "no", "--regex", "("], 1, "Error: the regex"),
        (["--prompt", "no", "--json-schema", "missing.json"], 2, "cannot read 'missing.json'"),
        (["--prompt", "no", "--json-schema", '{"not": {}}'], 1, "'not' at #"),
        (["--prompt", "no", "--lark", "missing.lark"], 2, "does not exist"),
        (["--prompt", "no", "--regex", "a", "-n", "0"], 2, "n-particles"),
        (["--prompt", "no", "--regex", "a", "--temperature", "0"], 2, "temperature"),
        (["--prompt", "no", "--regex", "a", "--model", "nowhere"], 1, "there is no nowhere"),
        (["--prompt", "no", "--regex", "a", "--chat"], 1, "chat template"),
    ],
)
def test_sample_says_what_is_wrong(arguments: list[str], status: int, message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert re.search(message, result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("no_model")
def test_sample_writes_a_record_and_shows_progress(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    result = run("--prompt", "no", "--choice", "yes", "--record", str(path), "--progress", "--seed", "3")
    assert "loading the default model" in result.stderr
    assert "SMC step" in result.stderr
    record = SMCRecord.load(path)
    assert record.run is not None
    assert record.run.seed == 3
    viewed = CliRunner().invoke(main, ["view", str(path), "--no-open"])
    assert viewed.exit_code == 0
    assert Path(viewed.stdout.strip()).is_file()


@pytest.mark.model
def test_demo_shows_its_command_and_what_that_prints() -> None:
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0
    command, blank, *lines = result.stdout.splitlines()
    assert blank == ""
    assert shlex.split(command)[:3] == ["$", "hfppl", "sample"]
    texts = [match[1] for line in lines if (match := re.match(r" +[01]\.\d{4}  (.*)", line))]
    assert len(texts) > 1
    assert not any("e" in text.lower() for text in texts)


def test_the_command_starts_without_torch() -> None:
    code = "import sys, hfppl.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
