"""The recording of the first five minutes: it holds each command of the tutorial, and shows what a terminal shows today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT
from .test_walks import environment

TUTORIAL, RECORDING = (ROOT / "docs" / f"{name}.md" for name in ("tutorial", "first-five-minutes"))
ROWS, COLUMNS = 24, 80
_CHANGING = {
    r"\d{8}-\d{6}-[0-9a-f]{8}": "RUN",
    r"\d{4}-\d\d-\d\d": "DATE",
    r"in\d+\.\d+s(\(\d+:\d+:\d+\))?": "inSECONDS",  # of more than a minute it says the minutes as well
    r"\d+bytes": "BYTES",
    r"[\d.]+[KMGT]iB": "DISK",
    r"(platform.*?)?rootdir:.*?collected": "collected",  # versions, and the plugins that are installed beside
    r"=+": "=",  # as long as the seconds leave room for
}


def screens(page: str) -> list[tuple[str, str]]:
    """Returns each command with the screen that it left."""
    return re.findall(r"^```text\n\$ ([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def substance(screen: str, place: str) -> str:
    """Returns what a screen says wherever and whenever it is recorded: without blanks, for lines break where a path ends."""
    text = "".join(screen.split()).replace(place, "PLACE")
    for changing, name in _CHANGING.items():
        text = re.sub(changing, name, text)
    return text


def place_of(page: str) -> str:
    """Returns the directory that a page was recorded in."""
    found = re.search(r"^rootdir: (\S+)$", page, re.MULTILINE)
    assert found is not None
    return found[1]


def test_it_shows_each_command_of_the_tutorial() -> None:
    commands = re.findall(r"^\$ (?!pip install)(.*)$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE)
    shown = screens(RECORDING.read_text(encoding="utf-8"))
    assert [command for command, _ in shown] == commands
    assert all(len(lines := screen.splitlines()) <= ROWS and max(map(len, lines)) <= COLUMNS for _, screen in shown)


@pytest.mark.slow
def test_it_shows_what_a_terminal_shows_today(tmp_path: Path) -> None:
    pytest.importorskip("pyte", reason="needs a terminal emulator: pip install pyte")
    command = [sys.executable, str(ROOT / "docs" / "screenshots.py"), "--recording", str(tmp_path / "page.md")]
    place = tmp_path / "gate"
    place.mkdir()
    subprocess.run(command, cwd=place, env={**environment(Path(sys.executable).parent), "TERM": "xterm"}, check=True)
    today, kept = ((tmp_path / "page.md").read_text(encoding="utf-8"), RECORDING.read_text(encoding="utf-8"))
    stale = {}
    for (name, screen), (_, before) in zip(screens(today), screens(kept), strict=True):
        now, then = substance(screen, str(place)), substance(before, place_of(kept))
        length = min(len(now), len(then)) * 4 // 5  # the first rows may be cut elsewhere: names of directories differ in length
        if now[-length:] != then[-length:]:
            stale[name] = screen
    assert not stale, "in an empty directory: python docs/screenshots.py --recording docs/first-five-minutes.md"
