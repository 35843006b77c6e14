"""A YAML file as a tree of entries that know their line, so that every refusal can say where."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from pytest_vlmrobust.core.errors import PolicyError, did_you_mean

Choice = TypeVar("Choice", bound=StrEnum)

_STRING = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_DAY = "tag:yaml.org,2002:timestamp"
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_SUCH_DAY = "a day that exists, such as 2027-06-30: there is no such day"
ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.-]*"
"""What ids are made of."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of the file; each reader method returns it as what was expected there, or raises PolicyError with file:line."""

    node: yaml.Node
    file: str
    path: str = ""

    @property
    def where(self) -> str:
        """``file:line`` of the value."""
        return f"{self.file}:{self.node.start_mark.line + 1}"

    def refuse(self, expected: str) -> NoReturn:
        """Raises the error that says what stands here and what was expected."""
        raise PolicyError(f"{self.where}: {self.path or 'the file'} is {_described(self.node)}. Expected {expected}")

    def mapping(self, keys: Collection[str], *, required: Iterable[str] = ()) -> dict[str, Entry]:
        """Returns the entries by key; refuses keys that are unknown, written twice or missing."""
        if not isinstance(self.node, yaml.MappingNode):
            self.refuse(f"a mapping with the keys {', '.join(keys)}")
        entries: dict[str, Entry] = {}
        for key_node, value_node in self.node.value:
            key = self._key(key_node, keys)
            if key in entries:
                raise PolicyError(
                    f"{_line(self.file, key_node)}: {self._child(key)} is written twice, first in line "
                    f"{entries[key].node.start_mark.line + 1}. Keep one of them"
                )
            entries[key] = Entry(value_node, self.file, self._child(key))
        for key in required:
            if key not in entries:
                raise PolicyError(f"{self.where}: {self.path or 'the file'} lacks {key!r}. Required: {', '.join(required)}")
        return entries

    def items(self) -> list[Entry]:
        """Returns the entries of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.refuse("a list")
        return [Entry(node, self.file, f"{self.path}[{number}]") for number, node in enumerate(self.node.value, start=1)]

    def text(self) -> str:
        """Returns text that is not empty."""
        value = self.scalar()
        if not isinstance(value, str):
            hint = (
                f": put it in quotes, '{self.node.value}'" if isinstance(self.node, yaml.ScalarNode) and value is not None else ""
            )
            self.refuse(f"text{hint}")
        if not value.strip():
            self.refuse("text that is not empty")
        return value

    def identifier(self) -> str:
        """Returns text made of letters, digits, ``_``, ``.`` and ``-``."""
        text = self.text()
        if not re.fullmatch(ID_PATTERN, text):
            self.refuse("letters, digits, '_', '.' and '-', beginning with a letter or digit")
        return text

    def texts(self) -> tuple[str, ...]:
        """Returns one text, or the texts of a list that is not empty, as a tuple."""
        if not isinstance(self.node, yaml.SequenceNode):
            return (self.text(),)
        if not self.node.value:
            self.refuse("text, or a list of texts")
        return tuple(entry.text() for entry in self.items())

    def choice(self, options: type[Choice]) -> Choice:
        """Returns one of the options."""
        value = self.scalar()
        if value not in list(options):
            names = [option.value for option in options]
            self.refuse(f"one of {', '.join(names)}.{did_you_mean(str(value), names)}")
        return options(value)

    def number(self) -> float | str:
        """Returns a number, or the text of a quantity with its unit."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.refuse("a number such as 0.05, 5pp or 5%")
        return value

    def date(self) -> dt.date:
        """Returns a day, written 2027-06-30."""
        value = self.scalar()
        if isinstance(value, str):
            try:
                return dt.date.fromisoformat(value)
            except ValueError:
                self.refuse(_NO_SUCH_DAY if _DAY_PATTERN.fullmatch(value) else "a day such as 2027-06-30")
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            self.refuse("a day such as 2027-06-30")
        return value

    def scalar(self) -> Any:
        """Returns the value as YAML reads it: text, number, truth value, day or ``None``."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse("a single value")
        try:
            return yaml.constructor.SafeConstructor().construct_object(self.node)
        except (yaml.YAMLError, ValueError):
            self.refuse(_NO_SUCH_DAY if self.node.tag == _DAY else "text, a number or a day")

    def _key(self, node: yaml.Node, known: Collection[str]) -> str:
        name = str(node.value) if isinstance(node, yaml.ScalarNode) else _described(node)
        if name not in known:
            raise PolicyError(
                f"{_line(self.file, node)}: unknown key {name!r} in {self.path or 'the file'}."
                f"{did_you_mean(name, known)} Known: {', '.join(known)}"
            )
        return name

    def _child(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def parse_document(content: bytes, file: str) -> Entry:
    """Returns the top of a YAML document.

    Raises:
        PolicyError: not UTF-8, not YAML, empty, or more than one document; names file and line.
    """
    try:
        text = content.decode()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{file}:{line}: byte 0x{content[error.start]:02x} is not UTF-8. Save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        raise PolicyError(_syntax_message(error, file)) from error
    except yaml.YAMLError as error:
        raise PolicyError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise PolicyError(f"{file}: lists or mappings are nested too deeply. Expected at most four levels") from error
    if node is None:
        raise PolicyError(f"{file}: the file is empty. Expected 'version: 1' and a list 'rules:'")
    return Entry(node, file)


def read_bytes(path: Path, file: str) -> bytes:
    """Returns a file's bytes.

    Raises:
        PolicyError: the file is absent or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{file}: cannot read the thresholds file: {error.strerror}. Expected a YAML file") from error


def _syntax_message(error: yaml.MarkedYAMLError, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    problem = error.problem or "not YAML"
    advice = ". Indent with spaces: YAML does not allow tabs" if "'\\t'" in problem else ""
    context = f" ({error.context})" if error.context else ""
    return f"{file}{line}: not YAML: {problem}{context}{advice}"


def _line(file: str, node: yaml.Node) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _described(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _NULL:
        return "empty"
    text = node.value if len(node.value) <= 60 else node.value[:57] + "..."
    return f"the text {text!r}" if node.tag == _STRING else repr(text)
