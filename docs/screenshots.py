r"""Takes the images that the docs show: of a report and of the viewer, wide and narrow, light and dark, and of a terminal.

    pytest --vlm=tiny --vlm-thresholds=default --vlm-dataset=shapes --vlm-sample=64 --vlm-report=out suites/test_corruptions.py
    python docs/screenshots.py out/report.html
    python docs/screenshots.py out/report.html --only report-desktop-light --called report-go
    python docs/screenshots.py out/report.html --only report-phone-light --called report-phone-go
    python docs/screenshots.py --terminal terminal-go -- pytest suites   # in the directory of the tutorial

    pytest --vlm=tiny --vlm=scripted:oracle/weak_family --vlm-mode=full --vlm-sample=24 \
        --vlm-store=seen suites/test_corruptions.py suites/test_patches.py -k "blur or patches"
    python docs/screenshots.py --view seen

They need `pip install playwright pyte` and a Chromium that is installed already; nothing is downloaded.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import contextlib
import fcntl
import html
import io
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL import Image

IMAGES = Path(__file__).parent / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LARGEST = 300_000
_ROWS, _COLUMNS = 24, 80
_COLOURS = {"red": "#f2777a", "green": "#99cc99", "brown": "#ffcc66", "blue": "#6699cc", "cyan": "#66cccc", "magenta": "#cc99cc"}
_STYLE = "margin:0;padding:12px;background:#1d1f21;color:#d8d8d8;font:14px/1.25 monospace;display:inline-block"


@dataclass(frozen=True, slots=True)
class Shot:
    """One image: what it is called, how large the window is, and which part of the page it shows."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"]
    part: str = ""
    """A CSS selector of what stands at the top of the image; empty for the top of the page."""
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
    """Takes all images of one report, or of one store in the viewer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, nargs="?", help="a report.html")
    parser.add_argument("--view", type=Path, metavar="STORE", help="a store whose newest run the viewer shows")
    parser.add_argument("--only", choices=[shot.name for shot in (*SHOTS, *VIEWED)], help="take this image alone")
    parser.add_argument("--called", default="", help="what to call it")
    parser.add_argument("--terminal", metavar="NAME", help="image of a terminal in which the command after -- has ended")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where to (default: %(default)s)")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, NAMES)), ""), help="the browser's program")
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    options.command = given[end + 1 :]
    if not options.chromium:
        parser.error(f"none of {', '.join(NAMES)} is on the path: name a browser with --chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    take(options)


def take(options: argparse.Namespace) -> None:
    """Writes what was asked for into ``options.out``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, contextlib.ExitStack() as stack:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        taken, shown = {}, []
        if options.terminal:
            taken[options.terminal] = _terminal(browser, options.command)
        if options.report:
            shown += [(options.report.resolve().as_uri(), shot) for shot in SHOTS]
        if options.view:
            address = stack.enter_context(_viewer(options.view))
            shown += [(address, shot) for shot in VIEWED]
        for address, shot in shown:
            if options.only in {None, shot.name}:
                taken[options.called or shot.name] = _photographed(browser, address, shot)
        for name, content in taken.items():
            (options.out / f"{name}.png").write_bytes(content)
            print(f"{options.out / name}.png: {len(content) // 1000} kB")  # noqa: T201 - a command line speaks by printing
        browser.close()


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


def _terminal(browser: Any, command: Sequence[str]) -> bytes:
    """Returns an image of a terminal in which a command has ended."""
    page = browser.new_page(device_scale_factor=1)
    page.set_content(f'<pre style="{_STYLE}">{_screen(command)}</pre>')
    taken = page.locator("pre").screenshot()
    page.close()
    return _small(taken)


def _screen(command: Sequence[str]) -> str:
    """Runs a command in a terminal and returns its last screen as HTML."""
    screen = _ended(command)
    return "\n".join("".join(_cell(screen.buffer[row][column]) for column in range(_COLUMNS)) for row in range(_ROWS))


def _ended(command: Sequence[str]) -> Any:
    """Runs a command in a terminal and returns its last screen, of pyte."""
    import pyte

    screen = pyte.Screen(_COLUMNS, _ROWS)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], list(command))  # noqa: S606 - it is to have the terminal and no shell
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    while True:
        try:
            said = os.read(terminal, 65536)
        except OSError:  # Linux says so once the program has ended
            break
        if not said:
            break
        stream.feed(said)
    os.waitpid(child, 0)
    return screen


def _cell(character: Any) -> str:
    colour = _COLOURS.get(character.fg, "inherit")
    weight = "bold" if character.bold else "normal"
    return f'<span style="color:{colour};font-weight:{weight}">{html.escape(character.data)}</span>'


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
        raise SystemExit(f"an image has {len(stream.getvalue())} bytes, more than {_LARGEST}")
    return stream.getvalue()


if __name__ == "__main__":
    main()
