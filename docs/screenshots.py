"""Takes the pictures of a report that the docs show: wide and narrow, light and dark.

    pytest --vlm=tiny --vlm-thresholds=default --vlm-report=out suites/test_corruptions.py suites/test_patches.py
    python docs/screenshots.py out/report.html

It needs `pip install playwright` and a Chromium that is installed already; nothing is downloaded.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL import Image

IMAGES = Path(__file__).parent / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LARGEST = 300_000


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: what it is called, how large the window is, and which part of the page it shows."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"]
    part: str = ""
    """A CSS selector of what stands at the top of the picture; empty for the top of the page."""
    pressed: str = ""
    """A CSS selector of what is clicked first."""


SHOTS = (
    Shot("report-desktop-light", 1440, 1100, "light"),
    Shot("report-desktop-dark", 1440, 1100, "dark", part=".sweep", pressed=".spot.o-fail"),
    Shot("report-phone-light", 390, 844, "light"),
    Shot("report-phone-dark", 390, 844, "dark", part=".maps"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Takes all pictures of one report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a report.html")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where to (default: %(default)s)")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, NAMES)), ""), help="the browser's program")
    options = parser.parse_args(arguments)
    if not options.chromium:
        parser.error(f"none of {', '.join(NAMES)} is on the path: name a browser with --chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    take(options.report.resolve(), options.out, options.chromium)


def take(report: Path, out: Path, chromium: str) -> None:
    """Writes the pictures of a report into ``out``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in SHOTS:
            content = _photographed(browser, report, shot)
            (out / f"{shot.name}.png").write_bytes(content)
            print(f"{out / shot.name}.png: {len(content) // 1000} kB")  # noqa: T201 - a command line speaks by printing
        browser.close()


def _photographed(browser: Any, report: Path, shot: Shot) -> bytes:
    size = {"width": shot.width, "height": shot.height}
    page = browser.new_page(viewport=size, color_scheme=shot.scheme, device_scale_factor=1)
    page.goto(report.as_uri())
    if shot.pressed:
        page.locator(shot.pressed).first.click()
    elif shot.part:
        page.locator(shot.part).first.evaluate("part => scrollTo(0, part.getBoundingClientRect().top + scrollY - 100)")
    page.wait_for_timeout(300)  # thumbnails are drawn when they come into view
    taken = page.screenshot()
    page.close()
    return _small(taken)


def _small(taken: bytes) -> bytes:
    stream = io.BytesIO()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(255).save(stream, "PNG", optimize=True)
    if len(stream.getvalue()) > _LARGEST:
        raise SystemExit(f"a picture has {len(stream.getvalue())} bytes, more than {_LARGEST}")
    return stream.getvalue()


if __name__ == "__main__":
    main()
