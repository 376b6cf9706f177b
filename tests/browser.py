"""A real browser, and somebody who looks at pages with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hfppl import SMCRecord

REQUIRED = os.environ.get("HFPPL_REQUIRE_BROWSER") == "1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SETTLE = """
const done = arguments[1];
let frames = arguments[0];
(function tick() { frames-- ? requestAnimationFrame(tick) : done(); })();
"""
COLOUR = """
const pen = new OffscreenCanvas(1, 1).getContext('2d');
pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]);
pen.fillRect(0, 0, 1, 1);
return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
"""
PIXELS = """
const [id, x, y, size] = arguments;
const canvas = document.getElementById(id), box = canvas.getBoundingClientRect();
const copy = new OffscreenCanvas(size, size).getContext('2d');
copy.drawImage(canvas, Math.round(box.left - x), Math.round(box.top - y));
return [...copy.getImageData(0, 0, size, size).data];
"""


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A session of Chromium. Without one the test is skipped, or fails if HFPPL_REQUIRE_BROWSER is 1."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "no Chromium with its driver here (on Debian: apt-get install chromium chromium-driver)"
        (pytest.fail if REQUIRED else pytest.skip)(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options, Service(driver))
    try:
        yield session
    finally:
        session.quit()


class Reader:
    """Somebody who looks at a page."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self._folder = session, folder

    def open(
        self, page: str | SMCRecord, width: int = 1100, height: int = 600, scheme: str = "light"
    ) -> None:
        path = self._folder / "page.html"
        path.write_text(page if isinstance(page, str) else page.to_html(), "utf-8")
        self.look(width, height, scheme)
        self.session.get(path.as_uri())
        self.settle(4)  # laying out takes one or two more

    def look(self, width: int = 1100, height: int = 600, scheme: str = "light") -> None:
        """From a screen of this size and scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.session.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.session.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.settle(4)

    def settle(self, frames: int = 2) -> None:
        """Until what was asked for is drawn."""
        self.session.execute_async_script(SETTLE, frames)

    def js(self, code: str, *arguments: Any) -> Any:
        return self.session.execute_script(code, *arguments)

    def text(self, selector: str) -> str:
        """The text of an element, hidden or not."""
        return str(self.js("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        return list(
            self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)
        )

    def is_shown(self, selector: str) -> bool:
        return bool(
            self.js("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector)
        )

    def box(self, selector: str) -> dict[str, float]:
        return dict(
            self.js("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        )

    def place(self, step: int, slot: int, n_steps: int, n_particles: int) -> tuple[int, int]:
        """Where on the screen a particle is, counted from 0."""
        extent = self.box("#extent")
        column, row = extent["width"] / n_steps, (extent["height"] - 16) / n_particles
        return round(extent["left"] + (step + 0.5) * column), round(extent["top"] + 16 + (slot + 0.5) * row)

    def mouse(self, x: int, y: int, click: bool = False) -> None:
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.session, duration=0)
        actions.pointer_action.move_to_location(x, y)
        if click:
            actions.pointer_action.click()
        actions.perform()
        self.settle()

    def click(self, selector: str) -> None:
        self.session.find_element("css selector", selector).click()
        self.settle()

    def press(self, *keys: str) -> None:
        """Keys, for whatever has the focus."""
        self.session.switch_to.active_element.send_keys("".join(keys))
        self.settle()

    def slide(self, step: int) -> None:
        """Move the slider to a step."""
        self.js(
            "const slider = document.getElementById('step');"
            "slider.value = arguments[0]; slider.dispatchEvent(new Event('input'));",
            step,
        )
        self.settle()

    def focused(self) -> str:
        return str(self.js("return document.activeElement.id"))

    def ink(self, name: str) -> list[int]:
        """A colour of the page, as red, green and blue."""
        return list(self.js(COLOUR, name))

    def pixels(self, x: int, y: int, reach: int, canvas: str = "threads") -> np.ndarray:
        """(2 reach + 1, 2 reach + 1, 4) of a canvas, around a place on the screen."""
        size = 2 * reach + 1
        return np.array(self.js(PIXELS, canvas, x - reach, y - reach, size)).reshape(size, size, 4)

    def covered(self, ink: str, x: int, y: int, reach: int, canvas: str = "threads") -> int:
        """How many pixels around a place have a colour."""
        seen = self.pixels(x, y, reach, canvas)
        near = np.abs(seen[..., :3] - np.array(self.ink(ink))).max(axis=-1) < 40
        return int((near & (seen[..., 3] > 128)).sum())

    def problems(self) -> list[Any]:
        """What the browser complained about, and whatever the page asked another place for."""
        complaints = [entry["message"] for entry in self.session.get_log("browser")]
        events = [json.loads(entry["message"])["message"] for entry in self.session.get_log("performance")]
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return complaints + [address for address in asked if not address.startswith("file://")]
