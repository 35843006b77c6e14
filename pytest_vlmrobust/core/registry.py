"""Registry: names to things, with near misses named and third parties loaded only when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from .errors import UnknownName, UsageError, did_you_mean

T = TypeVar("T")

DISABLE_VARIABLE = "PYTEST_VLMROBUST_NO_PLUGINS"


class RegistryState:
    """The registered things at a moment, compared by identity. It keeps them alive, so it can be a cache key."""

    __slots__ = ("_ids", "_things")

    def __init__(self, things: Iterable[object]) -> None:
        self._things = tuple(things)
        self._ids = tuple(map(id, self._things))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegistryState) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self._ids)


class Registry(Generic[T]):
    """An ordered map from names to things of the same kind.

    Entry points of the group ``pytest_vlmrobust.<group>`` are listed by name at once and imported on first use.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self.group = group
        self._things: dict[str, T] = {}
        self._entry_points: dict[str, EntryPoint] | None = None
        self._origins: dict[str, str] = {}

    def add(self, name: str, thing: T, *, replace: bool = False, origin: str = "") -> T:
        """Registers ``thing`` under ``name``. An existing name is a UsageError unless ``replace`` is set."""
        if name in self._things and not replace:
            raise UsageError(
                f"{self.kind} {name!r} is registered already{self._from(name)}. Choose another name, or pass replace=True"
            )
        self._things[name] = thing
        self._origins[name] = origin
        return thing

    def get(self, name: str) -> T:
        """Returns the thing called ``name``. An unknown name raises UnknownName with the nearest known name."""
        if name not in self._things:
            entry = self._installed_entries().get(name)
            if entry is None:
                raise UnknownName(self.kind, name, self.names())
            self._things[name] = self._load(entry)
        return self._things[name]

    def names(self) -> list[str]:
        """Returns every name in registration order, then the sorted names of installed packages, loaded or not."""
        installed = self._installed_entries()
        return [*(name for name in self._things if name not in installed), *installed]

    def loaded_things(self) -> dict[str, T]:
        """Returns the registered and already loaded things, without importing installed packages."""
        return dict(self._things)

    @property
    def state(self) -> RegistryState:
        """The registered and loaded things, as a cache key."""
        return RegistryState(self._things.values())

    def owner(self, name: str) -> str:
        """Returns the installed package that offers ``name``; empty if it was registered in this process."""
        entry = self._installed_entries().get(name)
        return "" if entry is None else (entry.dist.name if entry.dist else "an installed package")

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._installed_entries()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _installed_entries(self) -> dict[str, EntryPoint]:
        if self._entry_points is None:
            entries = [*(entry_points(group=f"pytest_vlmrobust.{self.group}") if self.group else ())]
            if os.environ.get(DISABLE_VARIABLE):  # of others: the demo is a part of this package
                entries = [entry for entry in entries if entry.module.startswith("pytest_vlmrobust.")]
            self._entry_points = {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}
        return self._entry_points

    def _load(self, entry: EntryPoint) -> T:
        try:
            thing: T = entry.load()
        except (Exception, SystemExit) as error:  # a script or a module
            owner = entry.dist.name if entry.dist else "an installed package"
            hint = did_you_mean(error.name, dir(error.obj)) if isinstance(error, AttributeError) and error.name else ""
            raise UsageError(
                f"{self.kind} {entry.name!r} from {owner} ({entry.value}) failed to import: {type(error).__name__}: {error}."
                f"{hint} Fix or uninstall {owner}, or set {DISABLE_VARIABLE}=1"
            ) from error
        return thing

    def _from(self, name: str) -> str:
        origin = self._origins.get(name)
        return f" by {origin}" if origin else ""
