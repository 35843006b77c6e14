"""Benchmark records as YAML: the shipped ones, and a user's own beside the data (``NAME.benchmark.yaml``).

    about: Is there such an object?
    kinds: [{task: yes_no, scorer: yes_no}]
    tsv: {columns: {category: split}}
    hub:
      - {ids: [owner/name], split: test, columns: {id: number, question: query, answer: label, images: picture}}

Every key is a field of ``benchmark.Benchmark``, ``Kind`` or ``Layout``; where a field holds several texts, one may stand alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pytest_vlmrobust.core.errors import DatasetError, did_you_mean

from .benchmark import ANSWERS, CHANCE, GROUP, ROLES, Benchmark, Kind, Layout, columns_in
from .yaml_lines import Lines, load_yaml, place

SUFFIX = ".benchmark.yaml"
SHIPPED = Path(__file__).with_name("benchmarks.yaml")


def read_benchmark(path: Path) -> Benchmark:
    """Returns the record in a file that holds one; its name is that of the file.

    Raises:
        DatasetError: it cannot be read, or says something that no record says; names file, line, value and what was expected.
    """
    value, lines = load_yaml(path)
    return _Reader(path, lines).benchmark(path.name.removesuffix(SUFFIX), value, ())


def read_benchmarks(path: Path) -> dict[str, Benchmark]:
    """Returns the records in a file that holds several by name, in the order written.

    Raises:
        DatasetError: as ``read_benchmark``.
    """
    value, lines = load_yaml(path)
    return {name: _Reader(path, lines).benchmark(name, body, (name,)) for name, body in value.items()}


class _Reader:
    """Turns the values of one file into records; every mistake is reported with its line."""

    def __init__(self, path: Path, lines: Lines) -> None:
        self.path, self.lines = path, lines

    def benchmark(self, name: str, value: Any, at: tuple[str | int, ...]) -> Benchmark:
        of: dict[str, Callable[..., Any]] = {
            "kinds": partial(self._each, self._kind),
            "tsv": self._layout,
            "hub": partial(self._each, self._layout),
            "files": self._texts,
            "together": self._texts,
            "circular": self._truth,
        }
        found = self._fields(Benchmark, value, at, of, leave=("name",))
        if not found.get("kinds"):
            self._wrong(at, value, f"'kinds': a list of kinds of questions, such as [{{task: {next(iter(CHANCE))}, scorer: …}}]")
        self._check_sources(found, at)
        self._check_keys(found, at)
        return Benchmark(name, **found)

    def _check_sources(self, found: Mapping[str, Any], at: tuple[str | int, ...]) -> None:
        tsv = found.get("tsv")
        if tsv is not None and (tsv.ids or "images" in tsv.columns or "options" in tsv.columns):
            self._wrong(
                (*at, "tsv"), "ids, images or options", "none of them: a TSV has columns 'image', 'image_path', 'A' to 'Z'"
            )
        for number, layout in enumerate(found.get("hub", ())):
            needed = ["id", "answer", "images", *([] if found.get("question") else ["question"])]
            absent = [role for role in needed if role not in layout.columns]
            if absent:
                self._wrong((*at, "hub", number), list(layout.columns), f"columns for {', '.join(absent)} too")

    def _check_keys(self, found: Mapping[str, Any], at: tuple[str | int, ...]) -> None:
        """Looks whether every layout has the keys that the record goes by."""
        layouts = [*([found["tsv"]] if "tsv" in found else []), *found.get("hub", ())]
        for name, keys in (("together", found.get("together", ())), ("sizes", tuple(filter(None, [found.get("sizes")])))):
            for key in keys:
                if (name, key) != ("together", GROUP) and not all(key in layout.keys for layout in layouts or [Layout()]):
                    self._wrong((*at, name), key, "a key that stands among the 'keys' of each of its layouts")

    def _kind(self, value: Any, at: tuple[str | int, ...]) -> Kind:
        found = self._fields(Kind, value, at, {})
        if found.get("task") not in CHANCE or not found.get("scorer"):
            self._wrong(at, value, f"'scorer', the name of a scorer, and 'task', one of {', '.join(CHANCE)}")
        return Kind(**found)

    def _layout(self, value: Any, at: tuple[str | int, ...]) -> Layout:
        of: dict[str, Callable[..., Any]] = {
            "columns": self._columns,
            "keys": self._mapping,
            "parts": self._parts,
            "answers": self._answers,
            "options_in_question": self._truth,
            "cut": self._texts,
            "absent": self._texts,
            "drop": self._drop,
            "ids": self._texts,
        }
        return Layout(**self._fields(Layout, value, at, of))

    def _columns(self, value: Any, at: tuple[str | int, ...]) -> dict[str, tuple[str, ...]]:
        found = {role: self._texts(columns, (*at, role)) for role, columns in self._table(value, at).items()}
        self._known(found, ROLES, at, "role")
        for role, columns in found.items():
            for column in columns:
                self._template(column, (*at, role))
        return found

    def _parts(self, value: Any, at: tuple[str | int, ...]) -> dict[str, str]:
        found = self._mapping(value, at)
        for column, pattern in found.items():
            try:
                re.compile(pattern)
            except re.error as error:
                self._wrong((*at, column), pattern, f"a regular expression ({error})")
        return found

    def _answers(self, value: Any, at: tuple[str | int, ...]) -> str | dict[str, str]:
        if isinstance(value, Mapping):
            return self._mapping(value, at)
        if value not in ANSWERS:
            self._wrong(at, value, f"one of {', '.join(ANSWERS)}, or what stands for what, such as {{'1': 'Yes'}}")
        return str(value)

    def _drop(self, value: Any, at: tuple[str | int, ...]) -> dict[str, dict[str, str]]:
        return {column: self._mapping(why, (*at, column)) for column, why in self._table(value, at).items()}

    def _mapping(self, value: Any, at: tuple[str | int, ...]) -> dict[str, str]:
        found = {key: self._text(text, (*at, key)) for key, text in self._table(value, at).items()}
        if at[-1] == "keys":
            for key, text in found.items():
                self._template(text, (*at, key))
        return found

    def _template(self, text: str, at: tuple[str | int, ...]) -> None:
        try:
            columns_in(text)
        except ValueError as error:
            self._wrong(at, text, f"a column, or columns in braces ({error})")

    def _fields(
        self,
        kind: type[Any],
        value: Any,
        at: tuple[str | int, ...],
        of: Mapping[str, Callable[..., Any]],
        leave: Sequence[str] = (),
    ) -> dict[str, Any]:
        table = self._table(value, at)
        self._known(table, [field.name for field in fields(kind) if field.name not in leave], at, "key")
        readers: Mapping[str, Callable[..., Any]] = defaultdict(lambda: self._text, of)
        return {key: readers[key](item, (*at, key)) for key, item in table.items()}

    def _each(self, read: Callable[..., Any], value: Any, at: tuple[str | int, ...]) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self._wrong(at, value, "a list")
        return tuple(read(item, (*at, number)) for number, item in enumerate(value))

    def _table(self, value: Any, at: tuple[str | int, ...]) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self._wrong(at, value, "a mapping from texts (write numbers and yes/no in quotes)")
        return value

    def _known(self, found: Mapping[str, Any], known: Sequence[str], at: tuple[str | int, ...], what: str) -> None:
        for key in found:
            if key not in known:
                self._wrong((*at, key), key, f"no such {what}.{did_you_mean(key, known)} Known: {', '.join(known)}")

    def _texts(self, value: Any, at: tuple[str | int, ...]) -> tuple[str, ...]:
        if isinstance(value, list) and value:
            return tuple(self._text(item, (*at, number)) for number, item in enumerate(value))
        return (self._text(value, at),)

    def _text(self, value: Any, at: tuple[str | int, ...]) -> str:
        if not isinstance(value, str):
            self._wrong(at, value, "text (in quotes where it looks like a number)")
        return str(value)

    def _truth(self, value: Any, at: tuple[str | int, ...]) -> bool:
        if not isinstance(value, bool):
            self._wrong(at, value, "true or false")
        return bool(value)

    def _wrong(self, at: tuple[str | int, ...], found: Any, expected: str) -> NoReturn:
        raise DatasetError(f"{place(self.path, self.lines, at)}: found {found!r:.120}, expected {expected}")
