"""Settings of a folder of identities: ``faces.yaml`` beside its table.

    domain: face                     face or word
    hinted: nose                     what semi-guided localisation tells
    landmarks: face_landmarker.task  MediaPipe's model file, for rows without boxes
    encoder: models/clip             near neighbours are those of this image encoder: a folder, or ID[@REVISION] of the hub

Paths are relative to the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import DatasetError, did_you_mean

from .faces_folder_layout import DOMAINS, SETTINGS
from .yaml_lines import Lines, load_yaml, place

KEYS = ("domain", "hinted", "landmarks", "encoder")
_HUB_ID = re.compile(r"(?P<id>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
_PATHS = ("/", "./", "../", "~")


@dataclass(frozen=True, slots=True)
class EncoderName:
    """Where an image encoder is: in a folder, else at a revision of a hub id."""

    written: str
    folder: Path | None = None
    id: str = ""
    revision: str = ""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """What ``faces.yaml`` says, or what holds without it."""

    domain: str = "face"
    hinted: str = "nose"
    landmarks: Path | None = None
    encoder: EncoderName | None = None

    @property
    def attributes(self) -> tuple[str, ...]:
        """What has boxes."""
        return DOMAINS[self.domain].attributes


def read_settings(folder: Path) -> FolderSettings:
    """Returns the settings of a folder; nothing that they name is opened.

    Raises:
        DatasetError: the file cannot be read or says something that cannot be meant; names line, value and what was expected.
    """
    file = folder / SETTINGS
    if file.is_file():
        return _settings(file)
    misnamed = file.with_suffix(".yml")
    if misnamed.is_file():
        raise DatasetError(f"{misnamed} is not read. Rename it to {SETTINGS}")
    return FolderSettings()


def _settings(file: Path) -> FolderSettings:
    value, lines = load_yaml(file)
    texts = _texts(file, value, lines)
    domain = _one_of(file, lines, "domain", texts.get("domain", "face"), DOMAINS)
    hints = DOMAINS[domain].hints
    landmarks = texts.get("landmarks")
    if landmarks and domain != "face":
        raise _wrong(
            file, lines, "landmarks", landmarks, "no such key where the domain is not face: landmarks are those of faces"
        )
    return FolderSettings(
        domain,
        _one_of(file, lines, "hinted", texts.get("hinted", hints[0]), hints),
        file.parent / Path(landmarks).expanduser() if landmarks else None,
        _encoder(file, lines, texts["encoder"]) if "encoder" in texts else None,
    )


def _texts(file: Path, value: Any, lines: Lines) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise _wrong(file, lines, "", value, f"keys and values; known keys: {', '.join(KEYS)}")
    for key, text in value.items():
        if key not in KEYS:
            raise _wrong(file, lines, key, key, f"no such key.{did_you_mean(str(key), KEYS)} Known: {', '.join(KEYS)}")
        if not isinstance(text, str) or not text.strip():
            raise _wrong(file, lines, key, text, "text")
    return value


def _one_of(file: Path, lines: Lines, key: str, text: str, known: Iterable[str]) -> str:
    names = list(known)
    if text not in names:
        raise _wrong(file, lines, key, text, f"one of {', '.join(names)}.{did_you_mean(text, names)}")
    return text


def _encoder(file: Path, lines: Lines, written: str) -> EncoderName:
    folder = file.parent / Path(written).expanduser()
    if folder.is_dir():
        return EncoderName(written, folder=folder)
    found = _HUB_ID.fullmatch(written)
    if found is None or written.startswith(_PATHS):
        raise _wrong(
            file,
            lines,
            "encoder",
            written,
            f"the folder of a checkpoint, or ID[@REVISION] of the hub; there is no folder {folder}",
        )
    return EncoderName(written, id=found["id"], revision=found["revision"] or "")


def _wrong(file: Path, lines: Lines, key: str, found: object, expected: str) -> DatasetError:
    return DatasetError(f"{place(file, lines, (key,) if key else ())}: found {found!r:.120}, expected {expected}")
