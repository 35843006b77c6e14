"""A folder of illusions, generated picture by picture. Existing files are kept, so that the work can be interrupted."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import UsageError, typed_path
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED, canonical_json, derive_seed, pixels_digest
from pytest_vlmrobust.perturbations.illusion_folder import ORIGINAL, decode_picture, stored_file
from pytest_vlmrobust.perturbations.pixels import Image
from pytest_vlmrobust.perturbations.rendering import as_rgb

from . import diffusion
from .diffusion import IllusionPipeline

INDEX = "index.jsonl"
MACHINE = frozenset({"device", "versions"})
"""What may differ among the illusions of one folder: several machines may share the work."""

_NAME = re.compile(r"[^./\\:*?\"<>|\x00-\x1f][^/\\:*?\"<>|\x00-\x1f]*")


def generate_folder(
    pipeline: IllusionPipeline,
    pictures: Mapping[str, Any],
    folder: str | Path,
    *,
    variants: Iterable[str] = tuple(diffusion.VARIANTS),
    seed: int = AUGMENTATION_SEED,
) -> int:
    """Writes pictures and their illusions into ``folder``, in the layout that :func:`perturbations.illusions` reads.

    Files are written completely or not at all, and existing files are kept: after an interruption, the same call continues. Each
    line of
    ``FOLDER/index.jsonl`` says how one illusion was made (prompts, seed, scales, steps, digests of the models, versions) and of
    which picture, by the digest of its pixels; it is written before the illusion, so that none lacks it.

    Args:
        pipeline: what renders.
        pictures: name to picture (what ``as_rgb`` takes); the name becomes that of the files. Each is asked for once, so a
            mapping that reads its pictures when asked keeps one in memory.
        folder: where to write; made when absent.
        variants: keys of ``prompts.VARIANTS``, all 15 by default.
        seed: with the name and the variant it decides the noise of each illusion.

    Returns:
        how many illusions were rendered now.

    Raises:
        UnknownName: there is no such variant.
        UsageError: a name cannot be that of a file; or the folder has another picture under that name, or an illusion that was
            made otherwise.
        ImageError: something is not a picture.
    """
    chosen = {variant: diffusion.prompt(variant) for variant in variants}
    for name in pictures:
        _check_name(name)
    root = typed_path(folder)
    index, rendered = _Index(root / INDEX), 0
    for name, picture in pictures.items():
        source = as_rgb(picture)
        _keep_original(root / ORIGINAL, name, source)
        for variant, text in chosen.items():
            facts = {"prompt": text, "seed": derive_seed(seed, name, variant), "source": pixels_digest(source), **pipeline.facts}
            rendered += _render(pipeline, source, root / variant / f"{name}.png", facts, index)
    return rendered


def _render(pipeline: IllusionPipeline, source: Image, file: Path, facts: dict[str, Any], index: _Index) -> bool:
    """Writes one illusion unless it is there; returns whether it was rendered."""
    part = file.parent
    if stored_file(part, file.stem):
        index.require(f"{part.name}/{file.name}", facts)
        return False
    illusion = pipeline.render(source, part.name, facts["seed"])
    index.add(f"{part.name}/{file.name}", facts)
    _write(file, illusion)
    return True


class _Index:
    """How each illusion was made: one JSON object a line; the last line about a file counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        torn = bool(lines) and not lines[-1].endswith(b"\n")
        whole = lines[:-1] if torn else lines
        self._torn_at = sum(map(len, whole)) if torn else None  # an interruption left half a line
        self._facts = dict(_record(line, f"{path}:{number}") for number, line in enumerate(whole, start=1))

    def add(self, file: str, facts: dict[str, Any]) -> None:
        """Appends how ``file`` is made."""
        if self._torn_at is not None:
            os.truncate(self._path, self._torn_at)
            self._torn_at = None
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(canonical_json({"file": file, **facts}) + "\n")

    def require(self, file: str, facts: dict[str, Any]) -> None:
        """Refuses ``file`` when it was made in another way; a file without a record is accepted."""
        known = self._facts.get(file, facts)
        other = sorted(key for key in facts if key not in MACHINE and known.get(key) != facts[key])
        if other:
            key = other[0]
            raise UsageError(
                f"generate_folder: {self._path.parent / file} was made with {key} {known.get(key)!r}, and now it is "
                f"{facts[key]!r}. Choose another folder, or delete what is to be made anew"
            )


def _record(line: bytes, where: str) -> tuple[str, dict[str, Any]]:
    try:
        record = json.loads(line)
        return record["file"], record
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{where}: {line[:60]!r} does not say how an illusion was made ({type(error).__name__}: {error}). Delete the line"
        ) from error


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"generate_folder: the picture {name!r} cannot be written to a file of that name. Expected no dot in front and none "
            "of / \\ : * ? \" < > |, such as name.replace('/', '_')"
        )


def _keep_original(part: Path, name: str, source: Image) -> None:
    file = stored_file(part, name)
    if file is None:
        _write(part / f"{name}.png", source)
    elif pixels_digest(decode_picture(file, "generate_folder")) != pixels_digest(source):
        raise UsageError(f"generate_folder: {file} is another picture than {name!r} of now. Choose another folder or name")


def _write(file: Path, image: Image) -> None:
    """Writes a PNG in one step, so that a file with this name is always complete."""
    import PIL.Image

    file.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, format="png")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_bytes(buffer.getvalue())
    draft.replace(file)
