"""The registry of perturbations, and the decorator that fills it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME, Setting, Step
from pytest_vlmrobust.core.errors import SettingError, UsageError, did_you_mean
from pytest_vlmrobust.core.registry import DISABLE_VARIABLE, Registry
from pytest_vlmrobust.core.sample import TEXT_HEIGHTS

from .record import CATEGORIES, CHANGES, Corruption, Note, Numbered, Parameters, unreadable_text

REGISTRY: Registry[Corruption] = Registry("perturbation", group="perturbations")

F = TypeVar("F", bound=Callable[..., Any])
Changes = Iterable[str] | Mapping[str, Iterable[str]]

SUBJECTS = {"image": "image", "question": "sample"}
"""What a perturbation may change, with the name of its function's argument in messages."""
_RECORDS = "__corruptions__"  # a function registered under two names has two records


def corruption(
    *,
    family: str,
    low: Parameters | None = None,
    mid: Parameters | None = None,
    high: Parameters | None = None,
    levels: Mapping[str, Parameters] | None = None,
    numbered: Numbered | None = None,
    name: str | None = None,
    category: str | None = None,
    on: str = "image",
    stochastic: bool = False,
    draws_as: str = "",
    changes: Changes = (),
    keeps_size: bool = True,
    views: Callable[..., int] | None = None,
    note: Note | None = None,
    depends_on: Callable[..., Parameters] | None = None,
    source: str = "",
    version: int = 1,
    replace: bool = False,
) -> Callable[[F], F]:
    """Registers the decorated function as a perturbation and returns it unchanged.

    A function with severity is given ``low``, ``mid`` and ``high``, its keyword arguments by level, or ``levels`` with names of
    their own; a binary one gets none::

        @corruption(family="noise", low={"sigma": 4}, mid={"sigma": 9}, high={"sigma": 20}, stochastic=True)
        def grain(image, rng, *, sigma): ...

    The other arguments are facts of :class:`Corruption`. By default ``name`` is the function's, and ``category`` the paper's word
    for the family. ``changes`` holds for all levels or is given by level; ``text_18`` stands for letters up to 18 pixels, and
    ``text`` for those of any height. All levels of one draw get the same generator: draw first what they share, so that a higher
    level is a lower one made stronger. ``replace`` takes the place of an own perturbation of that name, as when a notebook cell
    is run again.
    """
    severities = {"low": low, "mid": mid, "high": high}

    def register(function: F) -> F:
        label = _name(function, name)
        by_level = _levels(label, severities, levels)
        _check_name(label, replace=replace)
        if on not in SUBJECTS:
            raise UsageError(f"perturbation {label!r}: got on={on!r}. Expected one of {', '.join(map(repr, SUBJECTS))}")
        _check_signature(label, function, by_level, (SUBJECTS[on], *(["rng"] if stochastic else [])))
        _check_facts(label, by_level, version)
        record = Corruption(
            name=label,
            family=family,
            category=category or CATEGORIES.get(family, family.capitalize()),
            function=function,
            levels=by_level,
            changes=_changes(label, changes, by_level),
            on=on,
            stochastic=stochastic,
            draws_as=draws_as,
            version=version,
            source=source,
            keeps_size=keeps_size,
            numbered=numbered,
            views=views,
            note=note,
            depends_on=depends_on,
        )
        REGISTRY.add(label, record, replace=replace, origin=_origin(function))
        vars(function).setdefault(_RECORDS, {})[label] = record
        return function

    return register


def graded(**values: Sequence[float | str]) -> dict[str, Parameters]:
    """Returns keyword arguments by level: ``graded(sigma=(4, 9, 20))`` is ``{"low": {"sigma": 4}, ...}``."""
    return {level: {name: by_level[place] for name, by_level in values.items()} for place, level in enumerate(LEVELS)}


def find(name: str) -> Corruption:
    """Returns the record called ``name``.

    An entry point may point at a record or at a decorated function.
    """
    thing: Any = REGISTRY.get(name)
    record = getattr(thing, _RECORDS, {}).get(name, thing)
    if not isinstance(record, Corruption) or record.name != name:
        raise UsageError(
            f"perturbation {name!r} of {REGISTRY.owner(name) or 'this process'}: its entry point leads to {thing!r}. Expected a "
            f"function decorated with @corruption whose name is {name!r}. Fix or uninstall it, or set {DISABLE_VARIABLE}=1"
        )
    return record


def _levels(
    name: str, severities: Mapping[str, Parameters | None], named: Mapping[str, Parameters] | None
) -> Mapping[str | None, Parameters]:
    stated = {level: parameters for level, parameters in severities.items() if parameters is not None}
    if named is not None:
        stated = _named_levels(name, stated, named)
    elif stated and len(stated) < len(severities):
        missing = ", ".join(level for level in severities if level not in stated)
        raise UsageError(f"perturbation {name!r} lacks {missing}. Give low, mid and high, or none of them for a binary one")
    by_level: dict[str | None, Parameters] = {level: MappingProxyType(dict(values)) for level, values in stated.items()}
    return MappingProxyType(by_level or {None: MappingProxyType({})})


def _named_levels(name: str, stated: Mapping[str, Parameters], named: Mapping[str, Parameters]) -> dict[str, Parameters]:
    if stated or not named:
        raise UsageError(f"perturbation {name!r}: levels= takes the place of low, mid and high, and names at least one level")
    for level in named:
        if not _spells(f"{name}:{level}", Step(name, level)):
            raise UsageError(f"perturbation {name!r}: level {level!r} could not be written. Expected a-z, digits, '_' and '.'")
    return dict(named)


def _spells(text: str, step: Step) -> bool:
    try:
        return Setting.parse(text).steps == (step,)
    except SettingError:
        return False


def _check_name(name: str, *, replace: bool) -> None:
    if name in {CLEAN_NAME, NO_IMAGE_NAME}:
        raise UsageError(f"perturbation {name!r}: the name is reserved. Choose another name")
    if not _spells(name, Step(name)):
        raise UsageError(
            f"perturbation {name!r} could not be written in a setting. Expected a name of a-z, digits and '_', such as 'fog_2'"
        )
    if replace and name in REGISTRY and find(name).function.__module__.startswith(f"{__package__}."):
        raise UsageError(f"perturbation {name!r} is built in, and its published results mean these pixels. Choose another name")


def _name(function: Callable[..., Any], name: str | None) -> str:
    called = name or getattr(function, "__name__", None)
    if called is None:
        raise UsageError(f"a perturbation has no name: {function!r} is no function. Say name=")
    return str(called)


def _origin(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _check_facts(name: str, levels: Mapping[str | None, Parameters], version: object) -> None:
    """Refuses values that are not valid in a fingerprint, which is JSON."""
    for parameters in levels.values():
        for key, value in parameters.items():
            if not isinstance(value, int | float | str):
                raise UsageError(
                    f"perturbation {name!r}: {key} is {value!r} of type {type(value).__qualname__}. Expected an int, a float or "
                    "a str, for the fingerprint holds it; make anything else of them in the function"
                )
    if not isinstance(version, int) or version < 1:
        raise UsageError(f"perturbation {name!r}: got version={version!r}. Expected a whole number of at least 1")


def _check_signature(name: str, function: F, levels: Mapping[str | None, Parameters], positional: tuple[str, ...]) -> None:
    signature = inspect.signature(function)
    for level, parameters in levels.items():
        try:
            signature.bind(*positional, **parameters)
        except TypeError as error:
            call = ", ".join([*positional, *(f"{key}={value!r}" for key, value in parameters.items())])
            at = f" at level {level}" if level else ""
            raise UsageError(
                f"perturbation {name!r}{at} is called as {name}({call}), and {name}{signature} refuses: {error}"
            ) from error


def _changes(name: str, changes: Changes, levels: Mapping[str | None, Parameters]) -> Mapping[str | None, frozenset[str]]:
    by_level: Mapping[Any, Iterable[str]] = changes if isinstance(changes, Mapping) else dict.fromkeys(levels, tuple(changes))
    checked = {level: frozenset(by_level.get(level, ())) for level in levels}
    unknown = sorted({*by_level} - {*levels}, key=str) or sorted(frozenset().union(*checked.values()) - {*CHANGES})
    if unknown:
        hint = did_you_mean(str(unknown[0]), CHANGES)
        raise UsageError(
            f"perturbation {name!r}: changes names {unknown[0]!r}.{hint} Expected tags among {', '.join(CHANGES)}, "
            "by level or for all"
        )
    return MappingProxyType({level: tags.union(*map(_with_smaller_text, tags)) for level, tags in checked.items()})


def _with_smaller_text(tag: str) -> frozenset[str]:
    """Returns the changes implied by a change: if letters of a height are unreadable, smaller ones are too."""
    if tag == "text":
        return unreadable_text(TEXT_HEIGHTS[-1])
    return unreadable_text(int(tag.removeprefix("text_"))) if tag.startswith("text_") else frozenset()
