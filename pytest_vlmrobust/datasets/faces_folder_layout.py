"""What a folder of identities consists of, known without reading any of it.

FOLDER/faces.csv     the table: one row for each picture (or faces.json, a list of objects)
FOLDER/faces.yaml    settings; optional
FOLDER/…             the pictures, also in subfolders
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TABLES = ("faces.csv", "faces.json")
SETTINGS = "faces.yaml"
EXTRA = "pytest-vlmrobust[faces]"
"""What brings MediaPipe."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What can be told of the pictures of one domain."""

    attributes: tuple[str, ...]
    """What has boxes, as columns of the table."""
    hints: tuple[str, ...]
    """What semi-guided localisation can tell, the default first."""


DOMAINS = {
    "face": Domain(("left_eye", "right_eye", "nose", "mouth"), ("nose", "left_eye", "right_eye", "mouth")),
    "word": Domain(("word",), ("corner",)),
}


def tables_in(folder: Path) -> list[Path]:
    """Returns the tables of identities in a folder; usually none, and one in a folder of identities."""
    return [folder / name for name in TABLES if (folder / name).is_file()]
