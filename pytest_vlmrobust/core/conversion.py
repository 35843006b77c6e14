"""Dataclasses as what JSON holds, and back: one strict converter for every record that a file carries.

Reading is strict: a value of another type, an unknown key (but see ``OTHER_RELEASES``) and a key that is required and absent are
errors that name the place. A number that is not finite is ``null`` in JSON and NaN when read back. Whole numbers are counts and
never negative.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin, is_typeddict

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


# The text: one reader of whatever calls itself JSON.


DEEPEST = 100
"""How many lists and objects may stand inside each other."""


def read_json(content: bytes | str) -> Any:
    """Returns what a text of JSON holds; bytes are UTF-8, with or without a byte order mark.

    Raises:
        ValueError: it is not JSON; a key occurs twice, of which another reader may take the other value; a number is NaN or
            infinite, or has thousands of digits; or lists and objects stand too deep inside each other.
    """
    too_deep = f"more than {DEEPEST} lists and objects stand inside each other"
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text, object_pairs_hook=without_repeats, parse_constant=refuse_constant, parse_float=_finite_number)
    except RecursionError:
        raise ValueError(too_deep) from None
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(value):
        raise ValueError(too_deep)
    return value


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object (``object_pairs_hook``).

    Raises:
        ValueError: a key occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.100} occurs twice")
    return found


def refuse_constant(constant: str) -> NoReturn:
    """Refuses ``NaN`` and ``Infinity``, which Python reads (``parse_constant``).

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{constant} is not JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.100} is larger than any number that can be computed with")
    return number


def _is_deep(value: Any) -> bool:
    """Whether values stand deeper inside each other than is read; goes level by level, so that no depth is too much for it."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return True


# The values: dataclasses as what JSON holds, and back.


OTHER_RELEASES = "keys_of_other_releases"
"""The attribute of a class that tells of a run and is judged by nobody: keys that it does not know are passed over."""


def to_plain(instance: object) -> Any:
    """Returns a dataclass as dictionaries, lists, texts, numbers and ``None``; numbers that are not finite become ``None``."""
    return _converter().unstructure(instance)


def from_plain(data: object, kind: type[T]) -> T:
    """Returns the dataclass that :func:`to_plain` made ``data`` of, or data that are what a typed dictionary says.

    A typed dictionary may have other keys.

    Raises:
        TypeError: a value is of another type, a required key is absent, or a key is unknown; names the place, the value, and what
            was expected.
    """
    from cattrs import BaseValidationError, transform_error

    try:
        return _converter().structure(data, kind)
    except (BaseValidationError, TypeError) as error:
        problems = transform_error(error, format_exception=_problem)
        raise TypeError(_in_words(problems[0], kind)) from error


def _in_words(problem: str, kind: type) -> str:
    """Returns a problem with its place in front, ``measures[0].value of the record``."""
    text, _, place = problem.rpartition(" @ $")
    subject = f"the {kind.__name__.lower()}"
    return f"{place.removeprefix('.')} of {subject} {text}" if place else f"{subject} {text}"


def _problem(error: BaseException, _kind: type | None) -> str:
    from cattrs import ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError):
        return f"has the unknown key {min(error.extra_fields)!r:.100}: it is of another release"
    if isinstance(error, KeyError):
        return "is absent"
    return str(error)


@cache
def _converter() -> Converter:
    from cattrs import Converter
    from cattrs.cols import (
        homogenous_tuple_structure_factory,
        is_mapping,
        list_structure_factory,
        mapping_structure_factory,
    )
    from cattrs.gen import make_dict_structure_fn
    from cattrs.gen.typeddicts import make_dict_structure_fn as make_typed_dict_structure_fn

    converter = Converter()
    converter.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
    converter.register_unstructure_hook_func(_is_frozenset, sorted)
    for kind, holds, expected in _SCALARS:
        converter.register_structure_hook(kind, _checking_hook(holds, expected))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(int | float, _finite)
    converter.register_structure_hook(
        int | float | str, lambda value, kind: value if isinstance(value, str) else _finite(value, kind)
    )
    converter.register_structure_hook(StrEnum, _member)  # else it would be read as the text that it is, too
    converter.register_structure_hook_func(_is_protocol, _refuse_value)
    converter.register_structure_hook(str | tuple[str, ...], _text_or_texts)
    converter.register_structure_hook_factory(
        _is_tuple, lambda kind: _of(list, homogenous_tuple_structure_factory(kind, converter))
    )
    converter.register_structure_hook_factory(is_mapping, lambda kind: _of(dict, mapping_structure_factory(kind, converter)))
    converter.register_structure_hook_factory(_is_list, lambda kind: _of(list, list_structure_factory(kind, converter)))
    converter.register_structure_hook_factory(is_typeddict, lambda kind: _of(dict, make_typed_dict_structure_fn(kind, converter)))
    converter.register_structure_hook_factory(
        dataclasses.is_dataclass,
        lambda kind: _of(
            dict, make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=not hasattr(kind, OTHER_RELEASES))
        ),
    )
    return converter


_SCALARS: tuple[tuple[type, Callable[[object], bool], str], ...] = (
    (str, lambda value: isinstance(value, str), "text"),
    (bool, lambda value: isinstance(value, bool), "true or false"),
    (int, lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0, "a whole number of 0 or more"),
)
_CONTAINERS: dict[type, str] = {list: "a list", dict: "an object"}


def _checking_hook(holds: Callable[[object], bool], expected: str) -> Callable[[Any, Any], Any]:
    def read(value: Any, _kind: Any) -> Any:
        if not holds(value):
            raise TypeError(f"is {value!r:.100}, expected {expected}")
        return value

    return read


def _number(value: Any, _kind: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"is {value!r:.100}, expected a number or null")
    return value


def _finite(value: Any, kind: Any) -> float:
    if value is None:
        raise TypeError("is None, expected a number")
    return _number(value, kind)


def _member(value: Any, kind: type[StrEnum]) -> StrEnum:
    if value not in list(kind):
        raise TypeError(f"is {value!r:.100}, expected one of {', '.join(kind)}")
    return kind(value)


def _text_or_texts(value: Any, _kind: Any) -> str | tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"is {value!r:.100}, expected text or a list of texts")
    return value if isinstance(value, str) else tuple(texts)


def _is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _refuse_value(value: Any, _kind: Any) -> Any:
    raise TypeError(f"is {value!r:.100}, expected nothing: no file holds such a thing")


def _is_frozenset(kind: Any) -> bool:
    return get_origin(kind) is frozenset


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[-1] is ...


def _of(container: type, read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a reader that refuses other types before it reads the parts: a text has parts, too."""

    def checked(value: Any, kind: Any) -> Any:
        if not isinstance(value, container):
            raise TypeError(f"is {value!r:.100}, expected {_CONTAINERS[container]}")
        return read(value, kind)

    return checked
