"""Known names: the settings, families and levels that a scope can be about, and which of its globs are about none of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.errors import SettingError, UnknownName, did_you_mean
from pytest_vlmrobust.perturbations.catalog import SETS
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.policies import NO_LEVEL, JudgedTest, Scope

from .plan import LADDER, PATCHES, expand_settings
from .preprocessed import PREPROCESSING

_SETS = (*SETS, LADDER, PATCHES, PREPROCESSING)
"""Sets of settings, which a summary metric may be taken over."""
_LARGEST = 4096
"""Levels that are numbers are tried up to this one."""
_FIELDS = ("setting", "family", "level")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What the fields of a scope about settings can match; models, data sets and categories may be called anything."""

    settings: frozenset[str]
    families: frozenset[str]
    levels: frozenset[str]

    @classmethod
    def of(cls, tests: Iterable[JudgedTest] = ()) -> KnownNames:
        """Returns the names of everything that is registered, and of the tests of a run."""
        planned = list(tests)
        listed = [perturbations.info(name) for name in _registered()]
        return cls(
            frozenset((*_SETS, CLEAN_NAME, NO_IMAGE_NAME, *_registered(), *(test.setting for test in planned))),
            frozenset((*(about.family for about in listed), *(test.family for test in planned))) - {""},
            frozenset((*(about.level or NO_LEVEL for about in listed), *(test.level or NO_LEVEL for test in planned))),
        )

    def unknown_globs(self, scope: Scope) -> list[str]:
        """Returns, a sentence for each, the globs that match nothing that is known, with the nearest that does."""
        found = []
        for field in _FIELDS:
            for glob in getattr(scope, field):
                if not self._is_known(field, glob):
                    near = did_you_mean(glob, self._spellings(field, glob))
                    found.append(f"{field} {glob!r} matches no {field} that is known.{near}")
        return found

    def _is_known(self, field: str, glob: str) -> bool:
        scope = replace(Scope(), **{field: (glob,)})
        known = {"setting": self.settings, "family": self.families, "level": self.levels}[field]
        tests = (_test(field, name) for name in known)
        if any(scope.matches(test) for test in tests) or (field != "family" and _is_number(field, glob)):
            return True
        parts = glob.split("+") if field != "level" else [glob]  # several settings in a row are called like all of them
        return len(parts) > 1 and all(self._is_known(field, part) for part in parts)

    def _spellings(self, field: str, glob: str) -> Iterable[str]:
        if field == "setting":
            return self.settings if ":" in glob else {name.partition(":")[0] for name in self.settings}
        return self.families if field == "family" else self.levels


def _test(field: str, name: str) -> JudgedTest:
    about: dict[str, Any] = {field: name}
    return JudgedTest("", "", "", **about)


@cache
def _composed() -> tuple[str, ...]:
    return tuple(map(str, expand_settings([PREPROCESSING])))


def _registered() -> list[str]:
    return [*perturbations.names("all"), *_composed()]


def _is_number(field: str, glob: str) -> bool:
    """Whether a glob admits a setting that is not listed: one with a number for its level, or several in a row."""
    if field == "setting" and _is_setting(glob):
        return True
    scope = replace(Scope(), **{field: (glob,)})
    numbered = [record for record in map(REGISTRY.get, REGISTRY.names()) if record.numbered]
    return any(
        scope.matches(JudgedTest("", "", "", f"{record.name}:{number}", record.family, str(number)))
        for record in numbered
        if record.numbered
        for number in range(record.numbered.lowest, min(record.numbered.highest, _LARGEST) + 1)
    )


def _is_setting(text: str) -> bool:
    try:
        perturbations.info(text)
    except (SettingError, UnknownName):
        return False
    return True
