r"""Takes the pictures of a report and of the viewer that the docs show: wide and narrow, light and dark.

    pytest --vlm=tiny --vlm-thresholds=default --vlm-report=out suites/test_corruptions.py suites/test_patches.py
    python docs/screenshots.py out/report.html

    pytest --vlm=tiny --vlm=scripted:pytest_vlmrobust/backends/oracles/weak_family.yaml --vlm-mode=full --vlm-sample=24 \
        --vlm-store=seen suites/test_corruptions.py suites/test_patches.py -k "blur or weather or patches"
    python docs/screenshots.py --view seen

It needs `pip install playwright` and a Chromium that is installed already; nothing is downloaded.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
    path: str = ""
    """Of the viewer, which page it shows."""


SHOTS = (
    Shot("report-desktop-light", 1440, 1100, "light"),
    Shot("report-desktop-dark", 1440, 1100, "dark", part=".sweep", pressed=".spot.o-fail"),
    Shot("report-phone-light", 390, 844, "light"),
    Shot("report-phone-dark", 390, 844, "dark", part=".maps"),
)

_SAMPLE = "/sample?data=words&id=words-0013-spelled&under=glass_blur%3Amid"
VIEWED = (
    Shot("view-samples", 1280, 860, "light", path="/samples"),
    Shot("view-answers", 1280, 860, "dark", path="/answers?setting=glass_blur&flip=harmful"),
    Shot("view-sample", 1280, 1500, "light", path=_SAMPLE),
    Shot("view-phone-light", 390, 844, "light", path="/samples"),
    Shot("view-phone-dark", 390, 844, "dark", path=_SAMPLE),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Takes all pictures of one report, or of one store in the viewer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    taken = parser.add_mutually_exclusive_group(required=True)
    taken.add_argument("report", type=Path, nargs="?", help="a report.html")
    taken.add_argument("--view", type=Path, metavar="STORE", help="a store whose newest run the viewer shows")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where to (default: %(default)s)")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, NAMES)), ""), help="the browser's program")
    options = parser.parse_args(arguments)
    if not options.chromium:
        parser.error(f"none of {', '.join(NAMES)} is on the path: name a browser with --chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.report:
        take(options.report.resolve().as_uri(), SHOTS, options.out, options.chromium)
    else:
        with _viewer(options.view) as address:
            take(address, VIEWED, options.out, options.chromium)


@contextlib.contextmanager
def _viewer(store: Path) -> Iterator[str]:
    """Serves the runs of a store, and gives the address without the slash at its end."""
    command = [sys.executable, "-m", "pytest_vlmrobust.cli", "view", "--port", "0", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:  # noqa: S603 - no shell, our own command
        try:
            said = serving.stdout.readline() if serving.stdout else ""
            yield next(word for word in said.split() if word.startswith("http://")).rstrip("/")
        finally:
            serving.terminate()


def take(address: str, shots: Sequence[Shot], out: Path, chromium: str) -> None:
    """Writes pictures of the pages below an address into ``out``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for shot in shots:
            content = _photographed(browser, address, shot)
            (out / f"{shot.name}.png").write_bytes(content)
            print(f"{out / shot.name}.png: {len(content) // 1000} kB")  # noqa: T201 - a command line speaks by printing
        browser.close()


def _photographed(browser: Any, address: str, shot: Shot) -> bytes:
    size = {"width": shot.width, "height": shot.height}
    page = browser.new_page(viewport=size, color_scheme=shot.scheme, device_scale_factor=1)
    page.goto(address + shot.path)
    if shot.pressed:
        page.locator(shot.pressed).first.click()
    elif shot.part:
        page.locator(shot.part).first.evaluate("part => scrollTo(0, part.getBoundingClientRect().top + scrollY - 100)")
    page.wait_for_timeout(300)  # thumbnails are drawn when they come into view
    if shot.path:
        page.wait_for_load_state("networkidle")
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
