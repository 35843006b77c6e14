"""The pages of the documentation and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced code block, named by page and line."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for found in _BLOCK.finditer(text)
        if not languages or found[1] in languages
    ]


def everything() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
