"""The picture of a run, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Reader, chromium
from stories import HOSTILE, Shows, hostile_record, record_of, story
from tables import random_law, table_lm

from hfppl import LMContext, Model, SMCRecord, smc_standard
from hfppl.inference import RunInfo, SMCStep
from hfppl.viz import Picture


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def reader(session: Any, tmp_path: Path) -> Iterator[Reader]:
    session.get("about:blank")
    person = Reader(session, tmp_path)
    person.problems()
    yield person
    assert person.problems() == []


def test_the_first_look(reader: Reader) -> None:
    record = story()
    reader.open(record)
    assert reader.text("h1") == "Story smc_standard"
    assert reader.session.title == "Story (smc_standard)"
    facts = dict(zip(reader.texts("#facts dt"), reader.texts("#facts dd"), strict=True))
    seconds = facts.pop("took")
    assert float(seconds.removesuffix(" s")) >= 0
    assert facts == {
        "particles": "3",
        "steps": "3",
        "log Z so far": f"{record.steps[-1].log_mean_weight:.3f}",
        "ESS": f"{record.steps[-1].ess:.1f}",
        "still running": "1",
        "resampling": "stratified when ESS < 1.5",
        "seed": "11",
    }
    assert reader.text("#where") == "step 3 of 3"
    assert reader.texts(".rows .share") == ["50.0 %", "25.0 %", "25.0 %"]
    assert reader.texts(".rows .text") == ["three mice run", "one mouse ran", "three mice see"]
    assert "lowest" in reader.js("return document.getElementById('curves').getAttribute('aria-label')")


def test_area_is_weight_and_shape_is_state(reader: Reader) -> None:
    record = record_of(
        ([Shows("a", 0.1), Shows("b", 0.4), Shows("c", 0.5, True), Shows("d", 0.0)], None),
        ([Shows("a", 0.25), Shows("b", 0.25), Shows("c", 0.5, True), Shows("d", 0.0)], None),
    )
    reader.open(record)
    light, heavy, finished, dead = (reader.place(0, slot, 2, 4) for slot in range(4))
    assert reader.covered("running", *heavy, 15) / reader.covered("running", *light, 15) == pytest.approx(
        4, rel=0.2
    )
    assert reader.covered("running", *heavy, 2) == 25
    assert reader.covered("finished", *finished, 15) > 20
    assert reader.covered("finished", *finished, 2) == 0  # hollow
    assert 5 < reader.covered("dead", *dead, 15) < 40
    assert reader.covered("running", *dead, 15) == 0


def test_pointing_at_a_particle_shows_its_text_and_what_is_new(reader: Reader) -> None:
    reader.open(story())
    assert not reader.is_shown("#tip")
    reader.mouse(*reader.place(1, 2, 3, 3))
    assert reader.is_shown("#tip")
    assert reader.text("#tip strong") == "Particle 2 at step 2"
    assert "80.0 %" in reader.text("#tip .soft")
    assert "running" in reader.text("#tip .soft")
    assert reader.text("#tip .text") == "three mice "
    assert reader.text("#tip ins") == "mice "
    assert reader.covered("followed", *reader.place(1, 2, 3, 3), 20, "marks") > 20
    reader.mouse(5, 5)
    assert not reader.is_shown("#tip")


def test_what_is_shown_beside_the_pointer_stays_in_the_window(reader: Reader) -> None:
    long = [Shows("word " * 200 + str(slot)) for slot in range(6)]
    for width, height in ((1100, 600), (360, 640)):
        reader.open(record_of((long, None), (long, None)), width, height)
        for step, slot in ((0, 0), (0, 5), (1, 0), (1, 5)):
            reader.mouse(*reader.place(step, slot, 2, 6))
            box = reader.box("#tip")
            assert 0 <= box["left"] < box["right"] <= width
            assert 0 <= box["top"] < box["bottom"] <= height


def test_clicking_follows_an_ancestry_to_the_start(reader: Reader) -> None:
    reader.open(story())
    reader.mouse(*reader.place(2, 1, 3, 3), click=True)
    assert reader.text("#reading h2") == "Particle 1 at step 3"
    assert reader.texts(".trace .text") == ["three ", "three mice ", "three mice see"]
    assert reader.texts(".trace ins") == ["three ", "mice ", "see"]
    assert reader.texts(".trace li span:nth-child(2)") == ["#2", "#2", "#1"]
    for step, slot, followed in ((0, 2, True), (1, 2, True), (2, 1, True), (0, 1, False), (1, 0, False)):
        assert (reader.covered("followed", *reader.place(step, slot, 3, 3), 4, "marks") > 20) == followed
    reader.click(".close")
    assert reader.texts(".trace") == []
    assert reader.covered("followed", *reader.place(0, 2, 3, 3), 4, "marks") == 0
    reader.click(".rows button")  # the heaviest text
    assert reader.text("#reading h2") == "Particle 2 at step 3"


def test_the_keyboard_does_it_all(reader: Reader) -> None:
    from selenium.webdriver.common.keys import Keys

    reader.open(story())
    met = []
    reader.js("document.body.tabIndex = -1; document.body.focus()")
    for _ in range(4):
        reader.press(Keys.TAB)
        met.append(reader.focused())
    assert met[:3] == ["play", "step", "cursor"]
    reader.js("document.getElementById('cursor').focus()")
    reader.press(Keys.HOME, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP)
    label = "return document.getElementById('cursor').getAttribute('aria-label')"
    assert reader.js(label).startswith("Particle 0 at step 1: weight 28.6 %")
    assert reader.js(label).endswith(". one ")
    assert reader.text("#tip .text") == "one "
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert reader.js(label).startswith(
        "Particle 1 at step 2: weight 0.0 % · log-weight −∞ · dead · continues 1"
    )
    assert reader.text("#said") == reader.js(label)
    reader.press(Keys.ARROW_DOWN, Keys.ENTER)
    assert reader.texts(".trace .text") == ["three ", "three mice "]
    assert reader.focused() == "cursor"
    reader.press(Keys.ESCAPE)
    assert reader.texts(".trace") == []
    assert not reader.is_shown("#tip")

    reader.js("document.getElementById('step').focus()")
    reader.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert reader.text("#where") == "step 1 of 3"
    assert reader.js("return document.activeElement.getAttribute('aria-valuetext')").startswith(
        "step 1 of 3: ESS 2."
    )
    assert reader.texts(".rows .text") == ["three ", "one ", "two "]


def test_the_slider_hides_what_is_to_come_and_play_brings_it_back(reader: Reader) -> None:
    reader.open(story())
    last = reader.place(2, 2, 3, 3)
    assert reader.pixels(*last, 3, "marks")[..., 3].max() == 0
    reader.slide(2)
    assert reader.pixels(*last, 3, "marks")[..., 3].min() > 128
    reader.mouse(*last)
    assert not reader.is_shown("#tip")  # nothing to point at there yet
    reader.click("#play")
    assert reader.text("#play") == "Pause"
    reader.session.set_script_timeout(30)
    reader.session.execute_async_script(
        "const done = arguments[0], where = document.getElementById('where');"
        "(function wait() { where.textContent === 'step 3 of 3' ? done() : requestAnimationFrame(wait); })();"
    )
    assert reader.text("#play") == "Play"
    reader.settle()
    assert reader.pixels(*last, 3, "marks")[..., 3].max() == 0


def test_the_tables_say_the_same(reader: Reader) -> None:
    reader.open(story())
    reader.click("#particles summary")
    rows = reader.js(
        "const rows = document.querySelectorAll('#particles tr');"
        "return [...rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows == [
        ["particle", "weight", "text", "state", "continues", "log-weight"],
        ["0", "25.0 %", "one mouse ran", "finished", "0", "0.00"],
        ["1", "25.0 %", "three mice see", "running", "2", "0.00"],
        ["2", "50.0 %", "three mice run", "finished", "2", "0.69"],
    ]
    reader.slide(2)
    assert reader.texts("#particles td:nth-child(4)") == ["running", "dead", "running"]
    reader.click("#steps summary")
    assert reader.texts("#steps td:nth-child(5)") == ["no", "no", "yes"]


SHOWN = [
    HOSTILE[0],
    HOSTILE[1],
    HOSTILE[2],
    HOSTILE[3],
    "aU+2028bU+2029c",
    "safe U+202Egnp.exeU+202C U+2066xU+2069",
    "half U+D83D",
    "nul ␀ bell ␇ tab ⇥\t line↵\nend ␡ U+0085",
    "zeroU+200Bwidth" + "U+FEFF U+E0041",
    HOSTILE[9],
    HOSTILE[10],
    "new old",
]


def test_hostile_texts_are_shown_and_do_nothing(reader: Reader) -> None:
    reader.open(hostile_record())
    reader.js("for (const d of document.querySelectorAll('details')) d.open = true")
    reader.settle()
    assert reader.texts("#particles td.text") == [
        first + second for first, second in zip(SHOWN, SHOWN[1:] + SHOWN[:1], strict=True)
    ]
    assert reader.text("h1 bdi") == "</title><script>window.hit = 1</script>U+202E"
    for slot in range(len(HOSTILE)):
        reader.mouse(*reader.place(0, slot, 2, len(HOSTILE)))
        assert reader.text("#tip .text") == SHOWN[slot]
    reader.mouse(*reader.place(1, 1, 2, len(HOSTILE)), click=True)
    assert reader.texts(".trace .text")[0] == SHOWN[1]
    assert reader.js("return window.hit") is None
    assert (
        reader.js("return document.querySelectorAll('img, script:not(head *)').length") == 2
    )  # data and script
    assert reader.js("return [...document.querySelectorAll('.text > bdi')].every(e => e.dir === 'auto')")


def test_even_markup_that_got_in_would_do_nothing(reader: Reader) -> None:
    reader.open(story())
    reader.session.execute_async_script(
        "const done = arguments[0], place = document.getElementById('reading');"
        "document.addEventListener('securitypolicyviolation', () => requestAnimationFrame(done));"
        'place.innerHTML = \'<p onclick="window.hit = 1">x</p><img src=x onerror="window.hit = 1">\';'
        "place.firstElementChild.click();"
    )
    assert reader.js("return window.hit") is None
    complaints = reader.problems()
    assert complaints
    assert all("Content Security Policy" in complaint for complaint in complaints)


def test_light_and_dark(reader: Reader) -> None:
    reader.open(record_of(([Shows("a")], None)), scheme="light")
    brightness = []
    for scheme in ("light", "dark"):
        reader.look(scheme=scheme)
        assert reader.covered("running", *reader.place(0, 0, 1, 1), 3) == 49  # drawn again
        brightness.append((sum(reader.ink("ground")), sum(reader.ink("ink")), sum(reader.ink("running"))))
    light, dark = brightness
    assert light[0] > 700 > 200 > light[1]
    assert dark[0] < 200 < 600 < dark[1]
    assert light[2] < dark[2]


@pytest.mark.parametrize(("width", "height"), [(340, 700), (760, 600), (900, 600), (2400, 1300)])
def test_narrow_and_wide(width: int, height: int, reader: Reader) -> None:
    reader.open(story(), width, height)
    assert reader.js("return document.documentElement.scrollWidth") <= width
    for selector in ("#play", "#step", "#chart", "#curves", "#panel"):
        box = reader.box(selector)
        assert 0 <= box["left"] < box["right"] <= width
    if width >= 760:  # all of it in the window, as in a notebook's frame
        assert reader.js("return document.documentElement.scrollHeight") <= height
        assert reader.box("#curves")["bottom"] <= height
    assert reader.box("#chart")["height"] >= 180
    assert reader.covered("running", *reader.place(0, 2, 3, 3), 2) == 25


def test_without_texts_the_page_says_how_to_keep_them(reader: Reader) -> None:
    reader.open(
        record_of(([Shows("a"), Shows("b", 3)], None), ([Shows("a"), Shows("b", 3)], [1, 1]), texts=False)
    )
    assert "json_file=" in reader.text("#reading")
    assert reader.texts(".rows button div") == ["particle 1", "particle 0"]
    reader.mouse(*reader.place(1, 0, 2, 2), click=True)
    assert reader.texts(".trace li") == ["1#175.0 %", "2#025.0 %"]
    assert "Texts were not kept" in reader.text("#reading")


def test_a_run_of_which_nobody_lives_and_one_of_no_step(reader: Reader) -> None:
    dead = [Shows("a", 0.0, True), Shows("b", 0.0, True)]
    reader.open(record_of((dead, None), (dead, None)))
    assert "All particles are dead." in reader.text("#reading")
    assert "log Z−∞" in reader.texts("#facts div")
    reader.open(SMCRecord(2))
    assert reader.text("main") == "This run has taken no step."


def test_an_older_file(reader: Reader, tmp_path: Path) -> None:
    particles = [{"contents": "<<<>>>a", "logweight": "-1.0", "weight_incr": "-1.0"}] * 2
    steps = [
        {"step": 1, "mode": "init", "particles": particles},
        {"step": 2, "mode": "smc_step", "particles": particles},
    ]
    (tmp_path / "old.json").write_text(json.dumps(steps))
    reader.open(SMCRecord.load(tmp_path / "old.json"))
    assert "an older file" in reader.text("#facts")
    assert reader.texts(".rows .share") == ["100.0 %"]


def test_a_large_run(reader: Reader) -> None:
    rng = np.random.default_rng(1)
    record = SMCRecord(1000, run=RunInfo("Large", "smc_standard", 1000, 1))
    texts = [""] * 1000
    for step in range(100):
        resampled = step % 20 == 19
        ancestors = np.sort(rng.integers(1000, size=1000)) if resampled else np.arange(1000)
        texts = [texts[a] + "word "[slot % 3 :] for slot, a in enumerate(ancestors)]
        log_weights, finished = rng.normal(size=1000), np.zeros(1000, dtype=bool)
        record.steps.append(
            SMCStep(step + 1, tuple(ancestors.tolist()), resampled, log_weights, finished, tuple(texts))
        )
    reader.open(record)
    assert reader.is_shown("#fit")
    assert reader.js(
        "const s = document.getElementById('scroller'); return s.scrollHeight > 3 * s.clientHeight"
    )
    reader.mouse(*reader.place(99, 40, 100, 1000), click=True)
    assert reader.text("#reading h2") == "Particle 40 at step 100"
    slots = [40]
    for step in record.steps[:0:-1]:
        slots.insert(0, step.ancestors[slots[0]])
    assert reader.texts(".trace li span:nth-child(2)") == [f"#{slot}" for slot in slots]
    reader.click("#fit")
    assert reader.js("const s = document.getElementById('scroller'); return s.scrollHeight <= s.clientHeight")
    heavy = max(range(640, 660), key=lambda slot: record.steps[50].log_weights[slot])
    x, y = reader.place(50, heavy, 100, 1000)
    reader.mouse(x, y)
    (shown,) = re.findall(r"^Particle (\d+) at step 51$", reader.text("#tip strong"))
    assert abs(int(shown) - heavy) < 15
    assert reader.pixels(x, y, 5)[..., 3].max() > 0


async def test_a_real_run_in_a_notebooks_frame(reader: Reader) -> None:
    class Walk(Model):
        def __init__(self) -> None:
            super().__init__()
            self.context = LMContext(table_lm(random_law(31)), "a")

        async def step(self) -> None:
            token = await self.sample(self.context.next_token())
            self.score(-0.8 * token.token_id)
            if self.context.token_count == 4:
                self.finish()

    particles = await smc_standard(Walk(), 12, ess_threshold=0.8, seed=4)
    reader.open(f"<!doctype html><meta charset=utf-8><body>{Picture(particles.record)._repr_html_()}</body>")
    frame = reader.session.find_element("css selector", "iframe")
    reader.session.switch_to.frame(frame)
    try:
        assert reader.text("h1") == "Walk smc_standard"
        assert f"log Z{particles.log_marginal_likelihood:.3f}".replace("-", "−") in reader.texts("#facts div")
        assert reader.js("return innerHeight") == 600
    finally:
        reader.session.switch_to.default_content()
