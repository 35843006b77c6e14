"""The models file: the user's registry of models, a YAML file whose every mistake is reported with its line.

models:
  ours-v3:
    path: checkpoints/ours-v3        # relative to this file; or  id: org/name  for the hub
    dtype: bfloat16
    generation: {max_new_tokens: 512}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_vlmrobust.core.boxes import CONVENTIONS
from pytest_vlmrobust.core.errors import ModelError, did_you_mean
from pytest_vlmrobust.core.prediction import PROMPT_MODES, ModelRef

from .generation import generation_for

DTYPES = ("auto", "float32", "bfloat16", "float16")

_SAFE_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class _Field:
    """What one key of an entry accepts."""

    types: type | tuple[type, ...]
    expected: str
    choices: tuple[str, ...] = ()


_FIELDS: dict[str, _Field] = {
    "backend": _Field(str, "the name of a backend"),
    "path": _Field(str, "a checkpoint directory, or a file of scripted answers"),
    "id": _Field(str, "a hub id 'owner/name'"),
    "revision": _Field(str, "a branch, tag or commit of the hub, in quotes"),
    "dtype": _Field(str, "one of " + ", ".join(DTYPES), DTYPES),
    "prompt_mode": _Field(str, "one of " + ", ".join(PROMPT_MODES), PROMPT_MODES),
    "generation": _Field(dict, "a mapping such as {max_new_tokens: 512}"),
    "min_pixels": _Field(int, "a whole number of pixels above 0"),
    "max_pixels": _Field(int, "a whole number of pixels above 0"),
    "box_convention": _Field(str, "one of " + ", ".join(CONVENTIONS), CONVENTIONS),
    "family": _Field(str, "a short name that models of one kind share"),
    "parameters_billion": _Field(_NUMBER, "a number above 0"),
    "policy": _Field(str, "the name of a thresholds file"),
}


def read_models(path: Path) -> dict[str, ModelRef]:
    """Returns the models of a models file by name, in the order written.

    Raises:
        ModelError: the file is absent, is not YAML, or an entry does not follow the schema; names file and line.
    """
    return {name: _Entry(path, name, line, node).model() for name, line, node in _entries(path)}


def check_dtype(dtype: str, where: str) -> str:
    """Returns ``dtype`` unchanged.

    Raises:
        ModelError: it is none of the known ones.
    """
    if dtype not in DTYPES:
        raise ModelError(f"{where}: unknown dtype {dtype!r}.{did_you_mean(dtype, DTYPES)} Expected one of {', '.join(DTYPES)}")
    return dtype


def _entries(path: Path) -> Iterator[tuple[str, int, yaml.Node]]:
    for key, line, node in _pairs(path, _root(path), "the models file"):
        if key != "models":
            raise ModelError(f"{path}:{line}: unknown key {key!r}.{did_you_mean(key, ['models'])} Expected one mapping, 'models'")
        yield from _pairs(path, node, "'models'")


def _root(path: Path) -> yaml.Node:
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ModelError(
            f"models file {path} cannot be read: {error.strerror or error}. Give an existing file (--vlm-models)"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ModelError(f"{path}{line}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if node is None:
        raise ModelError(f"{path}: the models file is empty. Expected 'models:' with one entry per model")
    return node


def _pairs(path: Path, node: yaml.Node, what: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """Yields key, line and value of a mapping; a key given twice is an error, where YAML alone would keep the last."""
    if not isinstance(node, yaml.MappingNode):
        raise ModelError(f"{path}:{_line(node)}: {what} is {_shown(node)}; expected a mapping of names to values")
    seen: dict[str, int] = {}
    for key_node, value in node.value:
        key, line = str(key_node.value), _line(key_node)
        if key in seen:
            raise ModelError(f"{path}:{line}: {key!r} is given twice in {what}, first on line {seen[key]}. Keep one")
        seen[key] = line
        yield key, line, value


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _value(node: yaml.Node) -> Any:
    return yaml.SafeLoader("").construct_object(node, deep=True)


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the file, on its way to a ModelRef."""

    path: Path
    name: str
    line: int
    node: yaml.Node

    def model(self) -> ModelRef:
        if not _SAFE_NAME.match(self.name):
            raise self._error(
                self.line, "a name may have letters, digits, '.', '_' and '-' only, since it becomes part of test ids"
            )
        fields, lines = self._fields()
        location = self._location(fields)
        ref = ModelRef(name=self.name, backend=fields.pop("backend", "transformers"), location=location, **fields)
        try:
            generation_for(ref)
        except ModelError as error:
            raise ModelError(f"{self.path}:{lines.get('generation', self.line)}: {error}") from error
        return ref

    def _fields(self) -> tuple[dict[str, Any], dict[str, int]]:
        fields, lines = {}, {}
        for key, line, node in _pairs(self.path, self.node, f"model {self.name!r}"):
            fields[key], lines[key] = self._checked(key, line, node), line
        low, high = fields.get("min_pixels"), fields.get("max_pixels")
        if low is not None and high is not None and low > high:
            raise self._error(lines["max_pixels"], f"max_pixels {high} is below min_pixels {low}")
        return fields, lines

    def _checked(self, key: str, line: int, node: yaml.Node) -> Any:
        field = _FIELDS.get(key)
        if field is None:
            raise self._error(line, f"unknown field {key!r}.{did_you_mean(key, _FIELDS)} Known: {', '.join(_FIELDS)}")
        try:
            value = _value(node)
        except yaml.YAMLError as error:
            raise self._error(
                line, f"{key} is not plain YAML ({getattr(error, 'problem', error)}). Expected {field.expected}"
            ) from error
        wrong = not isinstance(value, field.types) or isinstance(value, bool)
        wrong = wrong or (isinstance(value, _NUMBER) and value <= 0) or (bool(field.choices) and value not in field.choices)
        if wrong or value == "":
            near = did_you_mean(str(value), field.choices)
            raise self._error(line, f"{key} is {value!r}.{near} Expected {field.expected}")
        return value

    def _location(self, fields: dict[str, Any]) -> str:
        path, hub_id = fields.pop("path", None), fields.pop("id", None)
        if (path is None) == (hub_id is None):
            found = "both" if path is not None else "neither"
            raise self._error(self.line, f"has {found} of 'path' and 'id'; give exactly one: a local path, or a hub id")
        if hub_id is not None:
            return str(hub_id)
        return str((self.path.parent / Path(path).expanduser()).resolve())

    def _error(self, line: int, message: str) -> ModelError:
        return ModelError(f"{self.path}:{line}: model {self.name!r}: {message}")
