"""The pages of the documentation and the code blocks in them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WALKS = [
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "papers.md",
    *sorted(page for page in (ROOT / "docs" / "how-to").glob("*.md") if page.stem != "illusions"),
]
"""Pages whose blocks build on each other: a test does what they say, from top to bottom, in one directory."""
_BLOCK = re.compile(r"(?:`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced code block, named by page and line."""

    page: Path
    line: int
    language: str
    text: str
    file: str = ""
    """The file that it is to be written to: what the line before it ends with, as in ```release.yaml`:``."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start("language")) + 1, match["language"], match["text"], match["file"] or "")
        for match in _BLOCK.finditer(text)
    ]


def blocks(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if not languages or block.language in languages]


def alone(language: str) -> list[Block]:
    """Returns the blocks of a language that mean something without those above them."""
    return [block for block in blocks(language) if block.page not in WALKS]


def everything() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def anchors(page: Path) -> set[str]:
    """Returns what links may name in a page: its headings as GitHub and the site spell them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {*titles, *(f"{name}-{number}" for name, count in Counter(titles).items() for number in range(1, count))}
