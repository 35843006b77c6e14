"""Datasets of the Hugging Face hub and folders of its package ``datasets``, read through that package (an optional extra).

``hf:ID[:config][@revision][#split]``; the id may also be the path of a folder written by ``save_to_disk`` or containing data
files. The benchmark's record assigns the roles: ``NAME.benchmark.yaml`` in the data folder or next to the folder,
else the record with this hub id. Tables stay on disk; until the pixels of an image are needed, only its digest is computed.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import DatasetError, ImageError, MissingExtra, UsageError, typed_path
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.core.words import quantity

from .benchmarks import SUFFIX, Benchmark, Layout, benchmark_of, hub_layout, read_benchmark
from .drafts import Draft, Rows, finish, merge_resolutions
from .files import Contents, Place, Problems, ReadOnceDataset
from .images import RowImage, from_base64, image_identity, is_turned

SAVED = ("dataset_dict.json", "state.json")
"""A folder saved by the package has one of these."""
BATCH = 32
_PARTS = re.compile(r"(?P<id>[^:@#]+)(?::(?P<config>[^@#]+))?(?:@(?P<revision>[^#]+))?(?:#(?P<split>.+))?")


@dataclass(frozen=True, slots=True)
class HubName:
    """The data to load: a hub id or a folder, and which part of it."""

    id: str
    config: str = ""
    revision: str = ""
    split: str = ""

    @property
    def is_folder(self) -> bool:
        """Returns whether the id is the path of an existing folder."""
        return typed_path(self.id).is_dir()

    def __str__(self) -> str:
        config, revision, split = (
            sign + text if text else "" for sign, text in zip(":@#", (self.config, self.revision, self.split), strict=True)
        )
        return f"hf:{self.id}{config}{revision}{split}"


def parse(typed: str) -> HubName:
    """Parses ``hf:ID[:config][@revision][#split]``; the path of an existing folder is taken as a whole.

    >>> parse("hf:MMMU/MMMU_Pro:standard (10 options)@main#test")
    HubName(id='MMMU/MMMU_Pro', config='standard (10 options)', revision='main', split='test')
    """
    rest = typed.removeprefix("hf:")
    if rest and (folder := typed_path(rest)).is_dir():
        return HubName(str(folder))
    match = _PARTS.fullmatch(rest)
    if match is None:
        raise UsageError(f"{typed!r} names no dataset of the hub: expected hf:ID[:config][@revision][#split]")
    parts = match.groupdict("")
    return HubName(str(typed_path(parts.pop("id"))), **parts)


def is_saved(folder: Path) -> bool:
    """Returns whether ``save_to_disk`` of the package wrote a folder."""
    return any((folder / mark).is_file() for mark in SAVED)


def open_hub(typed: str, name: str, folders: Sequence[Path]) -> HubDataset:
    """Returns the dataset that ``typed`` means; it is loaded on first use of its samples.

    ``typed`` is ``hf:…`` or the path of a folder. The user's own record is searched in ``folders`` or, for a path, next to the
    folder itself.
    """
    source = parse(typed)
    if importlib.util.find_spec("datasets") is None:
        raise MissingExtra(f"reading {typed}", "datasets", extra="datasets")
    benchmark, layout = _record(source, folders)
    return HubDataset(name, replace(source, config=source.config or layout.config), benchmark, layout)


_RECORD = """
  about: questions of our own
  kinds:
    - {{task: choice, scorer: choice}}
  hub:
    - ids: [{id}]
      split: {split}
      columns: {{id: id, question: question, answer: answer, options: choices, images: image}}
      answers: position  # or letter, or text"""


def _record(source: HubName, folders: Sequence[Path]) -> tuple[Benchmark, Layout]:
    places = [Path(source.id).absolute().parent] if source.is_folder else list(folders) or [Path.cwd()]
    files = [place / f"{Path(source.id).name}{SUFFIX}" for place in places]
    record_file = next((file for file in files if file.is_file()), None)
    if record_file is not None:
        benchmark = read_benchmark(record_file)
        if not benchmark.hub:
            raise DatasetError(
                f"{record_file} has no key 'hub': expected a list of layouts; the first must be the layout of {source}"
            )
        return benchmark, next((layout for layout in benchmark.hub if layout.config == source.config), benchmark.hub[0])
    record = hub_layout(source.id, source.config)
    named = benchmark_of(Path(source.id).name) if record is None and source.is_folder else None
    if named is not None and named.hub:
        record = named, named.hub[0]
    if record is None:
        looked = ", ".join(str(file) for file in files)
        hub_id = Path(source.id).name if source.is_folder else source.id
        example = _RECORD.format(id=json.dumps(hub_id), split=source.split or "test")
        raise DatasetError(
            f"{source}: no record says which of its columns is the question, the answer, the image. Looked for {looked}, and "
            f"among the benchmarks' hub ids. Write {files[0]}, with the names of its columns on the right:{example}"
        )
    return record


class HubDataset(ReadOnceDataset):
    """A dataset that the package ``datasets`` reads.

    ``digest`` is a fingerprint of every sample as read: ids, texts, targets and the digests of the encoded images.
    """

    def __init__(self, name: str, source: HubName, benchmark: Benchmark, layout: Layout) -> None:
        super().__init__(name, benchmark, self._read_table)
        self.source, self.layout = source, layout

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the content as asked."""
        return fingerprint([_content(sample) for sample in self.samples()])

    def _read_table(self) -> Contents:
        source = replace(self.source, split=self.source.split or self._own_split())
        return _HubTable(source, self.benchmark, self.layout).contents()

    def _own_split(self) -> str:
        if not self.source.is_folder:
            return self.layout.split
        return self.layout.split if self.layout.split in _splits(self.source) else ""

    def __repr__(self) -> str:
        return f"HubDataset({self.name!r}, {str(self.source)!r})"


def _content(sample: Sample) -> list[Any]:
    pictures = [image.identity() for image in sample.images]
    target = sample.target if isinstance(sample.target, str) else list(sample.target)
    texts = [sample.id, sample.question, sample.task, sample.category, sample.group, sample.hint, sample.scorer]
    return [
        *texts,
        sample.instruction,
        target,
        dict(sample.options),
        dict(sample.keys),
        *filter(None, [dict(sample.meta), sample.target_of_attack]),
        pictures,
    ]


def _read_cell(source: HubName, number: int, column: str, position: int, where: str) -> bytes:
    """Returns one encoded image in a row of a table."""
    (row,) = _table(source)[number : number + 1].to_pylist()
    return _bytes(_each(row[column])[position], where)


class _HubTable:
    """The rows of one split."""

    def __init__(self, source: HubName, benchmark: Benchmark, layout: Layout) -> None:
        self.source = source
        self.problems = Problems(str(source), "column", benchmark.name)
        self.rows = Rows(benchmark, layout, self.problems)
        self.table = _table(source)
        self.rows.check(self.table.column_names, str(source))
        self.without_picture: list[Place] = []

    def contents(self) -> Contents:
        drafts = [draft for number, cells in self._read_rows() if (draft := self._draft(number, cells))]
        samples = finish(drafts, self.problems, self.rows.layout.columns_of("id")[0])
        if not samples:
            raise DatasetError(f"{self.source} has no row with a question and an image: expected one at least")
        notes = [*self.problems.notes, *self.rows.notes(str(self.source))]
        if bare := self.without_picture:
            lacking = quantity(len(bare), "row has no image and is", "rows have no image and are")
            notes.append(f"{self.source}: {lacking} left out (the first: {bare[0]})")
        if sizes := self.rows.benchmark.sizes:
            samples, of_sizes = merge_resolutions(samples, sizes, str(self.source))
            notes.extend(of_sizes)
        return Contents(samples, {}, tuple(notes))

    def _read_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start in range(0, len(self.table), BATCH):
            yield from enumerate(self.table[start : start + BATCH].to_pylist(), start)

    def _draft(self, number: int, cells: Mapping[str, Any]) -> Draft | None:
        place = Place(str(self.source), number + 1, f"row {number}")
        if self.rows.drops(cells):
            return None
        try:
            images, digest = self._images(place, number, cells)
        except ImageError as error:
            self.problems.messages.append(("", str(error)))
            return None
        if not images:
            self.without_picture.append(place)
            return None
        columns = self.rows.layout.columns_of("images")
        return self.rows.draft(place, {key: value for key, value in cells.items() if key not in columns}, images, digest, number)

    def _images(self, place: Place, number: int, cells: Mapping[str, Any]) -> tuple[tuple[ImageSource, ...], str]:
        images: list[ImageSource] = []
        digests = []
        for column in self.rows.layout.columns_of("images"):
            where = f"{place}, column {column!r}"
            for position, value in enumerate(_each(cells.get(column))):
                picture = _bytes(value, where)
                digests.append(hashlib.sha256(picture).hexdigest())
                if is_turned(picture):
                    self.problems.turned.append(place)
                read = partial(_read_cell, self.source, number, column, position)
                images.append(RowImage(read, image_identity(digests[-1]), where))
        return tuple(images), hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _each(value: Any) -> list[Any]:
    """Returns the images of a cell; none if it is empty."""
    return [item for item in (value if isinstance(value, list) else [value]) if item]


def _bytes(value: Any, where: str) -> bytes:
    """Returns the encoded image of a cell: bytes, base64 text, or ``datasets``' own record of bytes or a path."""
    if isinstance(value, dict) and (value.get("bytes") or value.get("path")):
        value = value.get("bytes") or _file(value["path"], where)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return from_base64(value, where)
    raise ImageError(f"{where}: found {type(value).__name__}, expected an image, its bytes or their base64 text")


def _file(path: str, where: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ImageError(f"{where}: {path} cannot be read: {error.strerror or error}") from error


def _splits(source: HubName) -> list[str]:
    loaded = _load_table(replace(source, split=""))
    return list(loaded) if isinstance(loaded, dict) else []


@lru_cache(maxsize=8)
def _table(source: HubName) -> Any:
    """Returns the rows as stored, undecoded."""
    loaded = _load_table(source)
    if isinstance(loaded, dict):
        loaded = loaded[_only_split(source, list(loaded))]
    return loaded.with_format("arrow")


def _only_split(source: HubName, splits: Sequence[str]) -> str:
    if source.split in splits:
        return source.split
    if len(splits) == 1 and not source.split:
        return splits[0]
    wanted = f"no split {source.split!r}" if source.split else "several splits"
    raise DatasetError(f"{source} has {wanted}: it has {', '.join(splits)}. Name one: {replace(source, split=splits[0])}")


def _load_table(source: HubName) -> Any:
    library = importlib.import_module("datasets")
    try:
        if is_saved(Path(source.id)):
            return library.load_from_disk(source.id)
        return library.load_dataset(
            source.id, source.config or None, revision=source.revision or None, split=source.split or None
        )
    except (OSError, ValueError, KeyError) as error:
        cache = library.config.HF_DATASETS_CACHE
        offline = " (HF_HUB_OFFLINE is set: nothing was asked of the hub)" if library.config.HF_HUB_OFFLINE else ""
        raise DatasetError(
            f"{source} could not be loaded{offline}. Looked for the folder {Path(source.id).absolute()}, for {source.id!r} on "
            f"the Hugging Face hub, and in its cache {cache}. {type(error).__name__}: {error}"
        ) from error
