"""The picture of a run, as a page: what is in it, and where it goes."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner
from stories import Shows, hostile_record, record_of, story

from hfppl import SMCRecord
from hfppl.cli import main
from hfppl.viz import Picture, picture, to_html
from hfppl.viz.page_data import page_data


def parts_of(page: str) -> tuple[dict[str, str], str, str, str]:
    """Its policy, its style, its data and its script."""
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    return directives, style, data, script


def sha(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    policy, style, _, script = parts_of(to_html(story()))
    assert policy == {
        "default-src": "'none'",
        "script-src": sha(script),
        "style-src": sha(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_names_no_other_place() -> None:
    page = to_html(story())
    assert not re.search(r"https?:|//[a-z]|@import|url\(|<link|<iframe|\bsrc=", page)


def test_texts_cannot_leave_the_data() -> None:
    page, tame = to_html(hostile_record()), to_html(story())
    data, tame_data = parts_of(page)[2], parts_of(tame)[2]
    assert data.isascii()
    assert not set(data) & set("<>&")
    assert page.replace(data, "") == tame.replace(tame_data, "")


def test_texts_are_told_as_what_they_add_to_their_ancestors() -> None:
    record = record_of(
        ([Shows("\U0001f600a"), Shows("<<<b>>>")], None),
        ([Shows("\U0001f600ab"), Shows("other")], None),
        ([Shows("oth<<<\U0001f600>>>er"), Shows("\U0001f600xb")], [1, 0]),
    )
    assert [step["texts"] for step in page_data(record)["steps"]] == [
        [[0, "\U0001f600a"], [0, "b", 0, 1]],
        [[3, "b"], [0, "other"]],
        [[3, "\U0001f600er", 3, 5], [2, "xb"]],
    ]


def test_a_notebook_shows_the_page_in_a_frame_that_cannot_reach_out(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    record = hostile_record()
    shown = record.show()
    assert shown.path is None
    (frame,) = re.findall(
        r'^<iframe title="(.*?)" sandbox="(.*?)" style=".*?" srcdoc="(.*?)"></iframe>$',
        shown._repr_html_(),
        re.DOTALL,
    )
    assert frame[1] == "allow-scripts"
    assert html.unescape(frame[2]) == record.to_html()
    assert "<script>" not in shown._repr_html_()


def test_elsewhere_the_page_is_saved_and_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.setattr(picture, "_has_windows", lambda: True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    record = story()
    shown = record.show()
    assert shown.path is not None
    assert shown.path.read_text("utf-8") == record.to_html()
    assert opened == [shown.path.as_uri()]
    assert capsys.readouterr().err == f"The picture of the run is in {shown.path}\n"
    assert repr(shown) == f"<Run of Story: 3 particles, 3 steps, drawn in {shown.path}>"

    monkeypatch.setattr(picture, "_has_windows", lambda: False)
    record.show(tmp_path / "here.html")
    assert capsys.readouterr().err == f"The picture of the run is in {tmp_path / 'here.html'}: open it\n"
    assert len(opened) == 1


def test_the_command_draws_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[Picture] = []
    monkeypatch.setattr(Picture, "open", lambda self: bool(opened.append(self)))
    path = story().save(tmp_path / "run.json")
    result = CliRunner().invoke(main, ["view", str(path), "--no-open"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{path}.html\n", "")
    assert Path(f"{path}.html").read_text("utf-8") == SMCRecord.load(path).to_html()
    assert opened == []
    result = CliRunner().invoke(main, ["view", str(path), "-o", str(tmp_path / "new" / "out.html")])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'new' / 'out.html'}\n")
    assert "open the page by hand" in result.stderr
    assert [shown.path for shown in opened] == [tmp_path / "new" / "out.html"]


def test_the_command_tells_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    result = CliRunner().invoke(main, ["view", str(tmp_path / "x.json")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not a record of a run: it must be a list of steps" in result.stderr
    path = story().save(tmp_path / "run.json")
    result = CliRunner().invoke(main, ["view", str(path), "-o", str(path / "out.html"), "--no-open"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "run.json" in result.stderr
