"""Resolves the user's input to a dataset: a registered name, a path, or a benchmark's name in the data folder."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import DatasetError, UsageError, did_you_mean, files_beside, typed_path
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.words import first_few

from .benchmarks import UNKNOWN, Benchmark, benchmark_of, benchmarks
from .faces_folder_table import TABLE
from .protocol import COLLECTIONS, Collection, Dataset

if TYPE_CHECKING:
    from .files import Contents, Reader

# Names of datasets without a path: embedded ones, those of a ``conftest.py``, and those of installed packages.


DatasetFactory = Callable[[], Dataset]

DATASETS: Registry[DatasetFactory] = Registry("dataset", "datasets")


def register(name: str, factory: DatasetFactory, *, replace: bool = False) -> DatasetFactory:
    """Registers under ``name`` a ``factory``, which is called without arguments when a run first needs the data."""
    return DATASETS.add(name, factory, replace=replace)


def names() -> list[str]:
    """Returns all registered names; nothing is loaded."""
    return DATASETS.names()


DATA_VARIABLES = ("VLMROBUST_DATA", "LMUData")
HUB = "hf:"
_LONGEST_ID = 60
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_TSV = ".tsv"


def _read_own_rows(file: Path, _name: str) -> Contents:
    from .own_rows import read_own_rows

    return read_own_rows(file)


FORMATS: dict[str, Reader] = dict.fromkeys((".jsonl", ".csv", ".parquet"), _read_own_rows)
"""Readers by file suffix, without ``.tsv``: how it is read depends on its benchmark."""
_KINDS = "a .tsv, a .jsonl, a .csv, a .parquet"


def _is_data(path: Path) -> bool:
    return path.suffix.lower() in {_TSV, *FORMATS} and path.name != TABLE


def dataset_id(name_or_path: str) -> str:
    """Returns a short name that is safe in a test id (letters, digits, ``.``, ``_``, ``-``); nothing is opened.

    It is the last part of a path or a hub id without the ending of a data file, or a digest if that is empty.
    Two files of the same name in different folders get the same id.

    >>> dataset_id("data/MMBench_DEV_EN.tsv"), dataset_id("hf:lmms-lab/POPE"), dataset_id("shapes")
    ('MMBench_DEV_EN', 'POPE', 'shapes')
    """
    last = Path(name_or_path.removeprefix(HUB)).absolute().name
    stem = last[: -len(Path(last).suffix)] if _is_data(Path(last)) else last
    safe = _UNSAFE.sub("-", stem).strip("-.")[:_LONGEST_ID]
    whole = name_or_path.encode("utf-8", "surrogatepass")
    return safe or f"dataset-{hashlib.sha256(whole).hexdigest()[:8]}"


def resolve(name_or_path: str | Path, *, data_dir: Path | None = None, compat: str = "") -> Dataset:
    """Returns the dataset that ``name_or_path`` means.

    The first of these that exists: a registered name (including embedded and of installed packages); a path to a ``.tsv``,
    ``.jsonl``, ``.csv`` or ``.parquet``, or a folder with exactly one of them; in the data folder ``NAME.tsv``,
    ``NAME_local.tsv``, ``NAME`` with another of these endings, or the folder ``NAME``. For a file whose name is also
    registered, write it as a path: ``./shapes``.
    ``hf:ID[:config][@revision][#split]`` is read through the package ``datasets``.

    Without ``data_dir``, the data folders are those in ``VLMROBUST_DATA`` and ``LMUData``. ``compat="vlmevalkit"`` asks
    the questions of a TSV file with the options that VLMEvalKit's prompt shows.
    """
    typed = str(name_or_path)
    if not typed.strip():
        raise UsageError("the name of a dataset is empty: give a registered name, a path, or the name of a benchmark")
    if typed.startswith(HUB):
        from .huggingface import open_hub

        _refuse_compat(compat, f"{typed!r}")
        return open_hub(typed, dataset_id(typed), _data_folders(data_dir))
    if typed in DATASETS:
        _refuse_compat(compat, f"registered dataset {typed!r}")
        return DATASETS.get(typed)()
    path = find(typed, data_dir)
    if path is None:
        raise DatasetError(_not_found(typed, data_dir))
    return open_dataset(path, dataset_id(typed), compat=compat)


def open_dataset(path: Path, name: str = "", *, compat: str = "") -> Dataset:
    """Returns the dataset in a data file, in a folder with exactly one of them, or in a folder saved by ``datasets``.

    It is read when needed. A TSV, and a CSV with the same columns, is read by the record in ``NAME.benchmark.yaml`` next to it,
    else by that of the benchmark named like the file or the folder.
    """
    from .files import FileDataset

    name = name or dataset_id(str(path))
    if path.is_dir():
        from .huggingface import is_saved, open_hub

        if is_saved(path):
            _refuse_compat(compat, str(path))
            return open_hub(str(path), name, [])
        named = benchmark_of(name) or benchmark_of(path.name) or UNKNOWN
        if not any(_is_data(file) for file in path.iterdir()):
            from .vlmevalkit_tsv import read_images, read_list

            if named.tsv.image_names:
                return FileDataset(name, path, partial(read_images, benchmark=named), benchmark=named)
            if named.tsv.rows_file and (path / named.tsv.rows_file).is_file():
                return FileDataset(name, path / named.tsv.rows_file, partial(read_list, benchmark=named), benchmark=named)
    file = _only_file(path) if path.is_dir() else path
    if file.exists() and not file.is_file():  # a pipe or a device might never end
        raise DatasetError(f"{file} is not a dataset: it is no file. Expected {_KINDS}, or a folder with one of them")
    suffix = file.suffix.lower()
    benchmark, variant = _record_for(file, name) if suffix in {_TSV, ".csv"} else (UNKNOWN, "")
    if suffix == _TSV or benchmark is not UNKNOWN:
        from .vlmevalkit_tsv import read_tsv

        read = partial(read_tsv, compat=compat, benchmark=benchmark)
        return FileDataset(name, file, read, variant=compat + variant, benchmark=benchmark)
    if _is_data(file) and (read_rows := FORMATS.get(suffix)):
        _refuse_compat(compat, str(file))
        return FileDataset(name, file, read_rows)
    whole = f" To mean a collection of identities, give its folder: {file.parent}" if file.name == TABLE else ""
    raise DatasetError(f"{file} is not a dataset: expected {_KINDS}, or a folder that holds exactly one of them.{whole}")


def _record_for(file: Path, name: str) -> tuple[Benchmark, str]:
    """Returns the record for reading a TSV or a CSV, and its contribution to the data's digest: that of a user's record."""
    from .benchmarks import SUFFIX, read_benchmark

    record_file = file.with_name(file.stem + SUFFIX)
    if record_file.is_file():
        return read_benchmark(record_file), file_digest(record_file)
    return benchmark_of(file.stem) or benchmark_of(name) or UNKNOWN, ""


def _refuse_compat(compat: str, what: str) -> None:
    if compat:
        raise UsageError(f"compat={compat!r} is for VLMEvalKit's TSV files only; {what} is no such file")


def _only_file(folder: Path) -> Path:
    files = sorted(path for path in folder.iterdir() if _is_data(path) and path.is_file())
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(path.name for path in files)
        raise DatasetError(
            f"{folder} holds {len(files)} datasets ({names}): expected exactly one. Give the path of the one you mean"
        )
    if (folder / TABLE).is_file():
        raise DatasetError(
            f"{folder} is a collection of identities (it holds {TABLE}) and asks no questions: the tasks of the "
            f"Observatory are made of it, by suites/test_observatory.py. Expected {_KINDS} for questions"
        )
    there = sorted(path.name for path in folder.iterdir())
    raise DatasetError(
        f"{folder} has no data file. Expected exactly one of {_KINDS}, or {TABLE}."
        f"{_misnamed_table_hint(there)} It holds {_list(there)}"
    )


def _misnamed_table_hint(names: Iterable[str]) -> str:
    """Returns a hint at a file that looks like a table of identities under another name, or an empty string."""
    tables = (name for name in names if Path(name).suffix.lower() in (".json", ".xlsx", ".ods"))
    table = next(tables, None)
    return f" A table of identities is called {TABLE}, and there is {table}." if table else ""


def find(typed: str, data_dir: Path | None) -> Path | None:
    """Returns the first existing path that ``typed`` may mean: itself, then files and folders in the data folders."""
    return next((path for path in _candidates(typed, data_dir) if os.path.exists(path)), None)  # noqa: PTH110 - of a name that is too long with a suffix, Path.exists raises


def _candidates(typed: str, data_dir: Path | None) -> list[Path]:
    names = [f"{typed}{_TSV}", f"{typed}_local{_TSV}", *(f"{typed}{suffix}" for suffix in FORMATS), typed]
    return [typed_path(typed), *(folder / name for folder in _data_folders(data_dir) for name in names)]


def _data_folders(data_dir: Path | None) -> list[Path]:
    if data_dir is not None:
        return [data_dir]
    return [typed_path(os.environ[variable], given_as=variable) for variable in DATA_VARIABLES if os.environ.get(variable)]


def _not_found(typed: str, data_dir: Path | None) -> str:
    if typed in COLLECTIONS:
        return (
            f"{typed!r} is a collection of identities and asks no questions: the tasks of the Observatory are made of it, by "
            f"suites/test_observatory.py. Expected a dataset of questions: {_list(DATASETS.names())}, {_KINDS} or "
            "a folder"
        )
    folders = _data_folders(data_dir)
    files = [file for benchmark in benchmarks().values() for file in benchmark.file_names]
    if typed in files:
        files = []  # the name is correct but its file is absent: the nearest name would be another benchmark
    names = [*DATASETS.names(), *COLLECTIONS.names(), *(name for folder in folders for name in _names_in(folder)), *files]
    path = Path(typed)
    suffixes = sorted({path.suffix, _TSV, *FORMATS}) if path.name else []
    names += [name for suffix in suffixes for name in files_beside(path.with_suffix(suffix))]
    names = [name for name in names if name != typed]
    looked = ", ".join(str(path.absolute()) for path in _candidates(typed, data_dir))
    nowhere = "" if folders else " No data folder is set: use --vlm-data DIR, or the environment variable VLMROBUST_DATA."
    return (
        f"dataset {typed!r} was not found.{_nearest(typed, names)} Registered: {_list(DATASETS.names())}; "
        f"collections of identities: {_list(COLLECTIONS.names())}. "
        f"Looked for {looked}.{nowhere} Expected a registered name, {_KINDS}, or a folder with one of them or "
        f"with {TABLE} for identities{_of_benchmark(typed)}"
    )


def _of_benchmark(typed: str) -> str:
    benchmark = benchmark_of(dataset_id(typed))
    if benchmark is None:
        return ""
    names = ", ".join(f"{name}.tsv" for name in benchmark.files)
    hub = [layout.ids[0] for layout in benchmark.hub]
    return f". {benchmark.name} is a benchmark; nothing is downloaded for it. Its files as VLMEvalKit names them: {names}" + (
        f"; on the Hugging Face hub: {', '.join(f'{HUB}{hub_id}' for hub_id in hub)}" if hub else ""
    )


def _names_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted({path.stem for path in folder.iterdir() if _is_data(path) or path.is_dir()})


def _nearest(typed: str, names: Iterable[str]) -> str:
    for name in names:
        if name.lower() == typed.lower():
            return f" Did you mean {name!r}?"
    return did_you_mean(typed, names)


def _list(names: list[str], most: int = 20) -> str:
    return first_few(names, most) or "(nothing)"


# Resolves the user's input to a collection of identities: a registered name, or the user's own folder.


def resolve_collection(name_or_path: str | Path, data_dir: Path | None = None) -> Collection | None:
    """Returns the collection that ``name_or_path`` means, or ``None`` if it means none; no image is opened.

    It has a registered name, or is a folder with ``faces.csv``, given as a path or by its name in the
    data folder. For a folder whose name is also registered, write it as a path: ``./faces``. Each call makes a new collection,
    which reads the folder on first use.
    """
    typed = str(name_or_path)
    if typed in COLLECTIONS:
        return COLLECTIONS.get(typed)()
    if not typed.strip() or typed.startswith(HUB):
        return None
    path = find(typed, data_dir)
    if path is None or not (path / TABLE).is_file():
        return None
    from .faces_folder import FaceFolder

    return FaceFolder(path, dataset_id(typed))
