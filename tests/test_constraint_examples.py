"""The examples about constraints: their checkers on small inputs, and what they write on a real model."""

import ast
import json
import re

import jsonschema
import numpy as np
import pytest
from scripts import live, load

from hfppl import CachedCausalLM

json_schema = load("json_schema")
python_checker = load("python_checker")
sql = load("sql")
confidence = load("confidence")


@pytest.fixture(scope="module")
def default_model() -> CachedCausalLM:
    return CachedCausalLM.from_pretrained()


@pytest.fixture
def loaded(default_model: CachedCausalLM, monkeypatch: pytest.MonkeyPatch) -> CachedCausalLM:
    """The default model, loaded once for all examples."""
    monkeypatch.setattr(CachedCausalLM, "from_pretrained", lambda name: default_model)
    return default_model


@pytest.mark.model
@pytest.mark.usefixtures("loaded")
def test_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    particles = json_schema.main(["--n-particles", "6"])
    for particle in live(particles):
        jsonschema.validate(json.loads(str(particle)), json_schema.SCHEMA)
    assert repr(json.loads(str(particles.best()))["name"]) in capsys.readouterr().out


@pytest.mark.model
@pytest.mark.usefixtures("loaded")
def test_python_checker(capsys: pytest.CaptureFixture[str]) -> None:
    particles = python_checker.main(["--n-particles", "6", "--signature", "def larger(a, b):"])
    for particle in live(particles):
        code = f'def larger(a, b):\n    """x"""{particle}'
        (function,) = ast.parse(code).body
        assert isinstance(function, ast.FunctionDef)
        assert len(function.body) > 1
    assert str(particles.best()).strip().splitlines()[0] in capsys.readouterr().out


def test_python_checker_judges_whole_lines() -> None:
    rule = python_checker.checker("def f(x):")
    lm = CachedCausalLM.from_function(list("abc"), lambda ids: [0.0] * 3)
    beginnings = {
        "\n    y = (x +": True,
        "\n    y = (x +\n": True,
        "\n    return x x": True,
        "\n    return x x\n  ": False,
        "\n    if x:\n    ": True,
        "\n    if x:\n    y = 1\n": False,
        '\n    """a\nb': True,
    }
    for text, expected in beginnings.items():
        assert rule.start(lm).advance_bytes(text.encode()) == expected, text
    for text, expected in {"\n    return x": True, "\n    return (x": False, "\n    if x:\n": False}.items():
        state = rule.start(lm)
        state.advance_bytes(text.encode())
        assert state.can_end == expected, text


@pytest.mark.model
@pytest.mark.usefixtures("loaded")
def test_sql(capsys: pytest.CaptureFixture[str]) -> None:
    particles = sql.main(["--n-particles", "8"])
    for particle in live(particles):
        table = re.search(r" FROM (\w+)", str(particle))
        assert table is not None
        names = set(re.findall(r"[a-z]+", re.sub("'.*?'", "", str(particle)))) - {table[1]}
        assert names <= set(sql.TABLES[table[1]]), str(particle)
    assert str(particles.best()) in capsys.readouterr().out


def test_sql_knows_whose_columns_they_are() -> None:
    beginnings = {
        "SELECT age": True,
        "SELECT age FROM c": True,
        "SELECT age FROM singers": True,
        "SELECT age FROM concerts": False,
        "SELECT age FROM singers WHERE cou": True,
        "SELECT age FROM singers WHERE country = 'the city": True,
        "SELECT age FROM singers WHERE city ": False,
        "SELECT * FROM stadiums;": True,
    }
    assert {text: sql.can_go_on(text) for text in beginnings} == beginnings
    whole = {
        "SELECT name, age FROM singers WHERE age > 3 ORDER BY name;": True,
        "SELECT title FROM concerts WHERE city = 'Rome';": False,
        "SELECT COUNT(*) FROM stadiums;": True,
        "SELECT name FROM nobody;": False,
    }
    assert {text: sql.fits(text) for text in whole} == whole


@pytest.mark.model
def test_confidence(loaded: CachedCausalLM, capsys: pytest.CaptureFixture[str]) -> None:
    statement = "Two and two make four."
    found = confidence.main(["--statement", statement, "--statement", "Two and two make five."])
    assert all(0 < p < 1 for p in found.values())
    printed = capsys.readouterr().out
    assert all(f"{p:6.1%}  {text}" in printed for text, p in found.items())
    likeliest = re.search(r"an IP address: '(.*?)'", printed)
    assert likeliest is not None
    assert re.fullmatch(r"[\d.]+", likeliest[1])

    logits = loaded.next_token_logits_unbatched(confidence.chat(f"True or False? {statement}"))
    masses = {
        word: sum(
            np.exp(logits[i]) for i, data in enumerate(loaded.byte_vocab) if data and word.startswith(data)
        )
        for word in (b"True", b"False")
    }
    assert np.isclose(found[statement], masses[b"True"] / sum(masses.values()), rtol=1e-4)
