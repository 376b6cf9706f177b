"""The example that holds masking and sampling against the exact posterior, on a table and on a real model."""

import importlib.util
import itertools
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tables import table_lm

EXAMPLE = Path(__file__).parent.parent / "examples" / "masking_is_not_conditioning.py"
VOCAB = ("go", ",", " a", " old", " odd", " bad", " big", " ox", " owl", " bee", " bat", ".")
A, OLD, ODD, BAD, BIG, OX, OWL, BEE, BAT = range(2, 11)
RARE_WITH = {OLD: (OX, OWL), ODD: (OX, OWL)}  # likely adjectives, and nouns that hardly follow them


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_masking", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load()
RULE = example.Rule(prompt="go", adjectives="old odd bad big", nouns="ox owl bee bat", between=(", a",))


def law(prefix: tuple[int, ...]) -> list[float]:
    """Likes to begin with "old" or "odd", and then has little to say that obeys the rule."""
    weights = np.ones(len(VOCAB))
    weights[[OLD, ODD, BAD, BIG]] = 20.0, 10.0, 10.0, 6.0
    weights[[BEE, BAT]] = 10.0, 20.0
    if prefix[-1] in RARE_WITH:
        weights[list(RARE_WITH[prefix[-1]])] = 0.03, 0.06
    weights[prefix[0]] += len(prefix)  # a law that looks back
    return (weights / weights.sum()).tolist()


def by_hand() -> tuple[dict[str, float], dict[str, float]]:
    """All texts that obey, and for each its probability, and that with which a masked model writes it."""
    pairs = [*itertools.product((OLD, ODD), (OX, OWL)), *itertools.product((BAD, BIG), (BEE, BAT))]
    joint, masked = {}, {}
    for (adjective, noun), (second, second_noun) in itertools.product(pairs, pairs):
        if adjective == second or noun == second_noun:
            continue
        ids = (adjective, noun, 1, A, second, second_noun)
        nouns = {OLD: (OX, OWL), ODD: (OX, OWL), BAD: (BEE, BAT), BIG: (BEE, BAT)}
        allowed: list[Any] = [
            (OLD, ODD, BAD, BIG),
            nouns[adjective],
            (1,),
            (A,),
            [word for word in (OLD, ODD, BAD, BIG) if word != adjective],
            [word for word in nouns[second] if word != noun],
        ]
        p = q = 1.0
        for i, token_id in enumerate(ids):
            row = law((0, *ids[:i]))
            p *= row[token_id]
            q *= row[token_id] / sum(row[other] for other in allowed[i])
        text = "".join(VOCAB[token_id] for token_id in ids)
        joint[text], masked[text] = p, q
    return joint, masked


def test_it_finds_the_truth_and_ranks_the_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.svg"
    arguments = ["--n-particles", "5", "200", "--seeds", "4", "--output", str(picture)]
    result = example.main(arguments, lm=table_lm(law, VOCAB, (11,)), rule=RULE)

    joint, masked = by_hand()
    z = math.fsum(joint.values())
    assert math.fsum(masked.values()) == pytest.approx(1)
    assert result.log_z == pytest.approx(math.log(z))
    assert sum(result.posterior.values()) == pytest.approx(1)
    assert result.posterior == pytest.approx({text: p / z for text, p in joint.items()})
    assert result.masked == pytest.approx(masked)

    far = sum(abs(joint[text] / z - masked[text]) for text in joint) / 2
    assert far > 0.5, "this table is no trap"
    assert result.masking_distance == pytest.approx(far)
    assert result.pooled[example.MASKING][200] == pytest.approx(far, abs=0.05)
    for method in (example.SMC, example.IMPORTANCE, example.PERFECT):
        assert result.one_run[method][200] < far / 2
        assert result.one_run[method][200] < result.one_run[method][5]
        assert result.pooled[method][200] <= result.one_run[method][200]
    for method in (example.SMC, example.IMPORTANCE):
        assert result.log_z_estimate[method][200] == pytest.approx(math.log(z), abs=0.5)

    printed = capsys.readouterr().out
    assert f"{len(joint)} texts" in printed
    for number in (result.masking_distance, result.one_run[example.SMC][200], result.log_z):
        assert f"{number:.3f}" in printed
    assert max(map(len, printed.splitlines())) < 100
    check_picture(picture, result)


def check_picture(path: Path, result: Any) -> None:
    """Well-formed, with a title and a label for each method, none on top of another."""
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.parse(path).getroot()
    assert root.tag == f"{svg}svg"
    assert root.findtext(f"{svg}title")
    assert len(root.findall(f"{svg}polyline")) == 4
    heights = []
    for method in (example.MASKING, example.IMPORTANCE, example.SMC, example.PERFECT):
        [label] = [text for text in root.iter(f"{svg}text") if (text.text or "").startswith(f"{method} ")]
        heights.append(float(label.attrib["y"]))
    assert min(abs(a - b) for a, b in itertools.combinations(heights, 2)) >= 17
    assert f"{example.MASKING} {result.masking_distance:.2f}" in path.read_text(encoding="utf-8")


def test_distance() -> None:
    truth = {"a": 0.5, "b": 0.3, "c": 0.2}
    assert example.distance(truth, truth) == 0
    assert example.distance(truth, {"a": 1.0}) == pytest.approx(0.5)
    assert example.distance(truth, {"d": 1.0}) == example.distance(truth, {}) == pytest.approx(1)


def test_runs_are_pooled_by_their_estimates_of_z() -> None:
    assert example.pool([{"a": 1.0}, {"a": 0.5, "b": 0.5}], [1.0, 3.0]) == pytest.approx(
        {"a": 0.625, "b": 0.375}
    )


def test_a_word_of_two_tokens_is_refused() -> None:
    with pytest.raises(SystemExit, match="owlox"):
        example.Alliteration(
            table_lm(law, (*VOCAB[:-1], "ox", "."), (12,)), example.Rule("go", "old", "owlox", ())
        )


@pytest.mark.model
def test_on_the_default_model(tmp_path: Path) -> None:
    rule = example.Rule(
        adjectives="small great wise", nouns="soldier spider giant girl woman wolf", between=(" and a",)
    )
    arguments = ["--n-particles", "4", "100", "--seeds", "3", "--output", str(tmp_path / "picture.svg")]
    result = example.main(arguments, rule=rule)
    assert len(result.posterior) == 24
    assert sum(result.posterior.values()) == pytest.approx(1)
    assert sum(result.masked.values()) == pytest.approx(1)
    assert result.one_run[example.SMC][100] < result.masking_distance / 2
    assert result.log_z_estimate[example.SMC][100] == pytest.approx(result.log_z, abs=1)
