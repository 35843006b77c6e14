"""Cell and Sweep: the subject of a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from .errors import SettingError

# Setting: a perturbation at a level, spelled as the papers do.


LEVELS = ("low", "mid", "high")
CLEAN_NAME = "clean"
NO_IMAGE_NAME = "no_image"

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_LEVEL = re.compile(r"[a-z0-9][a-z0-9_.]*\Z")
_NUMBER = re.compile(r"([a-z][a-z0-9_]*)=(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)\Z")


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """One perturbation of a setting: its name, and its level or parameter (``None`` for a binary one)."""

    name: str
    level: str | None = None

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}:{self.level}"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One or more perturbations applied in order; ``parse(str(setting)) == setting``.

    >>> str(Setting.parse("fog:mid+jpeg_compression:high"))
    'fog:mid+jpeg_compression:high'
    """

    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Reads ``name[:level]``, several joined by ``+``; a level may give numbers: ``gaussian_blur:radius=1.7``.

        A name has characters of ``[a-z0-9_.]``, and a number its shortest spelling.
        """
        return cls(_steps(text))

    @property
    def name(self) -> str:
        """The perturbation without its level; composed ones are joined by ``+``."""
        return "+".join(step.name for step in self.steps)

    @property
    def level(self) -> str | None:
        """The level of a single perturbation; ``None`` for binary and composed settings."""
        return self.steps[0].level if len(self.steps) == 1 else None

    def __str__(self) -> str:
        return "+".join(str(step) for step in self.steps)


@lru_cache(maxsize=4096)
def _steps(text: str) -> tuple[Step, ...]:
    return tuple(_parse_step(part, text) for part in text.split("+"))


def _parse_step(part: str, whole: str) -> Step:
    name, colon, level = part.partition(":")
    word, numbers = read_level(level)
    if not _NAME.match(name) or (colon and not word and not numbers):
        raise SettingError(
            f"setting {whole!r}: cannot read {part!r}. Expected name or name:level with letters a-z, digits and '_', such as "
            "'glass_blur:low', 'flip_v', 'patches:3', 'gaussian_blur:radius=1.7' or 'fog:mid+jpeg_compression:high'"
        )
    if numbers and (shortest := spell_level(word, numbers)) != level:
        raise SettingError(f"setting {whole!r}: {level!r} has a shorter spelling. Write '{name}:{shortest}'")
    return Step(name, level if colon else None)


def read_level(level: str | None) -> tuple[str, dict[str, int | float]]:
    """Returns the word of a level and its named numbers in order; both empty if malformed.

    >>> read_level("radius=1.7,angle=30"), read_level("low"), read_level("gauss_noise,std_range=0.2")
    (('', {'radius': 1.7, 'angle': 30}), ('low', {}), ('gauss_noise', {'std_range': 0.2}))
    """
    first, *others = (level or "").split(",")
    word, given = (first, others) if _LEVEL.match(first) else ("", [first, *others])
    matches = [_NUMBER.match(part) for part in given]
    numbers = {match[1]: float(match[2]) if "." in match[2] else int(match[2]) for match in matches if match}
    return (word, numbers) if len(numbers) == len(matches) else ("", {})


def spell_level(word: str, numbers: Mapping[str, int | float]) -> str:
    """Returns a word and numbers as a level, each number in its shortest spelling: ``read_level`` reads it."""
    given = (f"{name}={Decimal(repr(int(n) if n == int(n) else n)):f}" for name, n in numbers.items())
    return ",".join([word] * bool(word) + [*given])


CLEAN = Setting((Step(CLEAN_NAME),))
NO_IMAGE = Setting((Step(NO_IMAGE_NAME),))
BASELINES = (CLEAN, NO_IMAGE)
"""Settings that change no image: images are shown as they are, or left out."""
EXCHANGED = Setting((Step("exchanged"),))
AGAIN = Setting((Step("again"),))
PROBES = (EXCHANGED, AGAIN)
"""Settings of the probes: with the images of other questions, and once more, alone. They have no tests,
and no suite can name them."""


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One model on one dataset under one setting: one test."""

    model: str
    dataset: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.model}-{self.dataset}-{self.setting}"

    __repr__ = __str__  # readers such as Allure show parameters like this


@dataclass(frozen=True, slots=True, order=True)
class SweepMetric:
    """One summary metric of a sweep (one model on one dataset over all settings of a suite)."""

    model: str
    dataset: str
    metric: str
    split: str = ""
    """The set of its settings, if a suite has several: ``observatory_ood``."""

    def __str__(self) -> str:
        return "-".join(part for part in (self.model, self.dataset, self.metric, self.split) if part)

    __repr__ = __str__  # readers such as Allure show parameters like this


@dataclass(frozen=True, slots=True, order=True)
class FamilyMetric:
    """One property of a family of models of different sizes on one dataset."""

    family: str
    dataset: str
    metric: str
    split: str = ""
    """The setting, or set of settings, of the scores."""

    @property
    def model(self) -> str:
        """The family, in place of the model of other records."""
        return self.family

    def __str__(self) -> str:
        return "-".join(part for part in (self.family, self.dataset, self.metric, self.split) if part)

    __repr__ = __str__  # readers such as Allure show parameters like this


Planned: TypeAlias = Cell | SweepMetric | FamilyMetric
"""The subject of a gated test."""
