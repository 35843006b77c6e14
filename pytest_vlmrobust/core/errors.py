"""All errors that a user can fix.

    VlmRobustError
    ├── UsageError             what was asked for makes no sense: options, names, files the user wrote
    │   ├── UnknownName        a name that is not registered, with the nearest ones
    │   ├── SettingError       a setting that cannot be parsed, or a level a perturbation does not have
    │   ├── DatasetError       a dataset that is absent, empty or malformed: file, row, value
    │   ├── PolicyError        a thresholds file that cannot be honoured: file:line
    │   └── ModelError         a model that cannot be found or described
    ├── MissingExtra           an optional package is not installed: the pip line
    ├── BudgetSpent            the run may ask nothing more: what lacks answers is undecided
    └── InfrastructureError    the gate could not measure: not a statement about the model
        ├── BackendError       a model that does not load, or an inference that failed
        ├── ImageError         pixels that could not be decoded
        ├── OfflineError       a prediction is needed, and the run may not call a model
        └── StoreError         predictions cannot be read or written

Each message says what, where, the value found, what was expected and what to do.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from .words import first_few, printable

_LONGEST = 20_000
"""Characters of a message, which may quote foreign text."""


class VlmRobustError(Exception):
    """The base of all errors of this package.

    Its text is always printable, because messages end on terminals and in logs.
    """

    __module__ = "pytest_vlmrobust"

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = VlmRobustError.__module__  # tracebacks name the package alone

    def __str__(self) -> str:
        return printable(super().__str__(), _LONGEST, kept="\n")


class UsageError(VlmRobustError):
    """The options, names or files of the user contradict each other or do not exist."""

    mistakes: tuple[str, ...] = ()
    """The mistakes, if there are several."""


class UnknownName(UsageError):
    """An unknown name, with the nearest known names.

    >>> raise UnknownName("metric", "pcry", ["pcri", "rci"])
    Traceback (most recent call last):
    pytest_vlmrobust.UnknownName: unknown metric 'pcry'. Did you mean 'pcri'? Known: pcri, rci
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "", more: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        prefix = f"{where}: " if where else ""
        suffix = f". {more}" if more else ""
        super().__init__(
            f"{prefix}unknown {kind} {name!r}.{did_you_mean(name, self.known)} Known: {_shorten(self.known)}{suffix}"
        )


class SettingError(UsageError):
    """A setting that is not of the form ``name[:level][+name[:level]]``, or an unknown level."""


class DatasetError(UsageError):
    """A dataset is missing, empty or malformed; names the file and the row."""


class PolicyError(UsageError):
    """A policy file has a mistake; names file and line."""


class ModelError(UsageError):
    """A model cannot be found, or its entry in the models file cannot be used."""


class MissingExtra(VlmRobustError):
    """An optional package is not installed; names the extra that installs it."""

    def __init__(self, feature: str, package: str, *, extra: str = "", install: str = "") -> None:
        """Names what to install.

        ``extra`` is the extra of this project that brings the package; ``install`` is what to give to ``pip install`` where that
        is neither.
        """
        needed = requirements_of(extra) or install or package
        super().__init__(f"{feature} needs the package {package!r}, which is not installed. Install it: pip install {needed}")


class BudgetSpent(VlmRobustError):
    """The budget of seconds or tokens is spent, and no new model call starts; says nothing about the model."""


class InfrastructureError(VlmRobustError):
    """Something could not be measured; says nothing about the model."""


class BackendError(InfrastructureError):
    """A model did not load, or a call failed."""


class ImageError(InfrastructureError):
    """An image could not be decoded, or has an unusable shape."""


class OfflineError(InfrastructureError):
    """An answer is not in the store, and --vlm-offline forbids inferences."""


class StoreError(InfrastructureError):
    """The store cannot be opened, read or written."""


def requirements_of(extra: str) -> str:
    """Returns the requirements of an extra for ``pip install``; empty if this project is not installed.

    The project is not named: no package index has it.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        parts = [line.partition(";") for line in requires("pytest-vlmrobust") or ()]
    except PackageNotFoundError:
        return ""
    wanted = ["extra", "==", extra]
    return " ".join(shlex.quote(needed.strip()) for needed, _, marker in parts if re.findall(r"[\w-]+|==", marker) == wanted)


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """Returns ``" Did you mean 'x'?"`` for the nearest known name, or an empty string when none is near.

    With ``most`` above 1 it also offers near names that begin as much like it.
    """
    near = difflib.get_close_matches(name, list(known), n=most, cutoff=0.6)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, next(iter(near), ""), strict=False)))
    near = [other for other in near if other.startswith(name[:alike])]
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def typed_path(text: str | Path, folder: Path = Path(), *, given_as: str = "") -> Path:
    """Returns a typed path with ``~`` expanded; the path need not exist.

    It is relative to ``folder``; ``given_as`` is its option or variable, for messages.
    """
    if problem := why_no_path(text, folder):
        named = " ".join(filter(None, (given_as, f"{str(text)!r:.200}")))
        raise UsageError(f"{named}: {problem}. Expected a path that this machine can have")
    return folder / Path(text).expanduser()


def why_no_path(text: str | Path, folder: Path = Path()) -> str:
    """Returns why a typed path, relative to a folder, is impossible on this machine; empty if it is possible."""
    if not str(text):  # as of a variable of a shell that is not set; pathlib takes it for the directory here
        return "it is empty"
    try:
        os.stat(folder / Path(text).expanduser())  # noqa: PTH116 - Path.exists passes over a NUL, and from 3.14 on over any error
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except RuntimeError:
        return f"there is no home directory of {str(text).partition('/')[0]!r:.100}"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def files_beside(absent: Path) -> list[str]:
    """Returns files with the same suffix next to a missing file, for ``did_you_mean``."""
    try:
        names = sorted(file.name for file in absent.parent.iterdir() if file.suffix == absent.suffix and file.is_file())
    except OSError:
        return []
    return [str(absent.with_name(name)) for name in names]


def _shorten(names: list[str], most: int = 20) -> str:
    return first_few(names, most) or "(nothing is registered)"


BY_AGE = ("latest", "previous")
"""Names for the newest run of a store and the run before it."""


def run_by_age(name: str, runs: Sequence[Path], store: Path, kind: str = "run") -> Path:
    """Returns the run for a name of ``BY_AGE``. ``runs`` are the runs of that kind in the store, newest first."""
    place = BY_AGE.index(name)
    if place >= len(runs):
        held = f"{len(runs) or 'no'} {kind}{'' if runs else ' here'}"
        raise UsageError(f"{name}: {store} holds {held}. Run pytest --vlm=NAME first, or name the directory of a run")
    return runs[place]
