"""Transforms of other libraries as settings: ``albumentations:gauss_noise,std_range=0.2``, ``nrtk:gaussian_blur,ksize=5``.

A level is the name of a transform in lower case, then numbers for its arguments; other arguments have the library's defaults. A
range gets the number as both ends, and every image is transformed. These settings are not listed and declare no changes to
answers; use ``changed_by`` in the data for that.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_vlmrobust.core.cell import read_level, spell_level
from pytest_vlmrobust.core.errors import ImageError, MissingExtra, SettingError, did_you_mean

from .registry import CATEGORIES, REGISTRY, Corruption, Parameters

if TYPE_CHECKING:
    from .pixels import Image

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True, slots=True)
class Library:
    """The transforms of a library, and how to apply one."""

    name: str
    modules: tuple[str, ...]
    ending: str
    """The ending of its class names, left out of settings."""
    base: str
    """The name of the class that all of them inherit from."""
    change: Callable[[type, Mapping[str, Any], Image, int], Any]
    """``(class, arguments, image, seed) -> image``."""
    fixed: frozenset[str]
    """Arguments that settings cannot set."""


def _albumentations(transform: type, arguments: Mapping[str, Any], image: Image, seed: int) -> Any:
    made = transform(**arguments, p=1.0)
    made.set_random_seed(seed)
    return made(image=image)["image"]


def _nrtk(perturber: type, arguments: Mapping[str, Any], image: Image, seed: int) -> Any:
    seeded = {"seed": seed} if "seed" in inspect.signature(perturber).parameters else {}
    return perturber(**arguments, **seeded)(image=image)[0]


_NRTK = "nrtk.impls.perturb_image"
LIBRARIES = (
    Library("albumentations", ("albumentations",), "", "BasicTransform", _albumentations, frozenset({"p"})),
    Library(
        "nrtk",
        tuple(
            f"{_NRTK}.{part}"
            for part in (
                "photometric.noise",
                "photometric.blur",
                "photometric.enhance",
                "geometric.random",
                "environment",
                "optical",
            )
        ),
        "Perturber",
        "PerturbImage",
        _nrtk,
        frozenset({"seed", "is_static"}),
    ),
)


@cache
def _classes(library: Library) -> dict[str, type]:
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # its import would look for a newer release on the network
    try:
        modules = [importlib.import_module(module) for module in library.modules]
    except ImportError as error:
        raise MissingExtra(f"the setting '{library.name}:…'", error.name or library.name, extra=library.name) from error
    things = {name: getattr(module, name) for module in modules for name in dir(module) if name.endswith(library.ending)}
    return {
        _HUMP.sub("_", name.removesuffix(library.ending)).lower(): thing
        for name, thing in things.items()
        if inspect.isclass(thing) and library.base in [parent.__name__ for parent in thing.__mro__[1:]]
        if not inspect.isabstract(thing) and ".core." not in thing.__module__
    }


def _parameters(library: Library, level: str | None) -> Parameters:
    """Returns the transform's name and the numbers in a level, as written, without the library."""
    word, numbers = read_level(level)
    if not word:
        example = f"'{library.name}:gaussian_blur', with what {library.name} calls its transforms"
        raise SettingError(f"setting '{library.name}:{level or ''}' names no transform. Expected one such as {example}")
    return {"transform": word, **numbers}


def _facts(library: Library, transform: str, **numbers: float) -> Parameters:
    _transform(library, spell_level(transform, numbers))
    return {library.name: version(library.name)}


@cache
def _transform(library: Library, level: str) -> tuple[str, type, Mapping[str, Any]]:
    """Returns the transform of a level with its class and arguments, after a test on a small image."""
    setting, classes = f"setting '{library.name}:{level}'", _classes(library)
    word, numbers = read_level(level)
    if word not in classes:
        raise SettingError(
            f"{setting}: {library.name} {version(library.name)} has no transform {word!r}.{did_you_mean(word, classes)} "
            f"Expected '{library.name}:NAME' or '{library.name}:NAME,ARGUMENT=NUMBER' with one of {', '.join(sorted(classes))}"
        )
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(classes[word]).parameters.items()
        if name not in library.fixed and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    if unknown := [name for name in numbers if name not in defaults]:
        raise SettingError(
            f"{setting}: {word} has no argument {unknown[0]!r}.{did_you_mean(unknown[0], defaults)} Expected one of "
            f"{', '.join(defaults) or 'none'}"
        )
    arguments = {name: (n, n) if isinstance(defaults[name], tuple) else n for name, n in numbers.items()}
    try:
        tried = library.change(classes[word], arguments, np.zeros((64, 64, 3), np.uint8), 0)
    except Exception as error:  # any error of the library for missing or refused arguments
        raise SettingError(
            f"{setting}: {library.name} refuses it: {_reason(error)}. Give it other numbers, or leave it out"
        ) from error
    if tried.dtype != np.uint8 or tried.ndim != 3:
        raise SettingError(
            f"{setting}: {word} returns {tried.dtype} of shape {tried.shape}. Expected one that makes uint8 RGB images"
        )
    return word, classes[word], arguments


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300].rstrip('.')}"


def _corruption(library: Library) -> Corruption:
    def apply(image: Image, rng: np.random.Generator, *, transform: str, **numbers: float) -> Any:
        """Applies a transform of another library."""
        name, made, arguments = _transform(library, spell_level(transform, numbers))
        try:
            return library.change(made, arguments, image.copy(), int(rng.integers(2**31)))
        except Exception as error:
            raise ImageError(f"{library.name}:{name} cannot be applied to this image: {_reason(error)}") from error

    return Corruption(
        name=library.name,
        family=library.name,
        category=CATEGORIES[library.name],
        function=apply,
        levels={},
        changes={},
        stochastic=True,
        version=1,
        source=library.name,
        keeps_size=False,
        depends_on=partial(_facts, library),
        transforms=partial(_parameters, library),
    )


for _library in LIBRARIES:
    REGISTRY.add(_library.name, _corruption(_library), origin=__name__)
