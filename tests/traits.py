"""Traits of backends in tests: whatever the class has under the name of a trait."""

from __future__ import annotations

import dataclasses
from typing import Any

from pytest_vlmrobust.backends import Traits


def own_traits(backend: Any) -> Traits:
    """Returns the members of a backend that have the name of a trait, as its traits."""
    names = [field.name for field in dataclasses.fields(Traits) if hasattr(backend, field.name)]
    return Traits(**{name: getattr(backend, name) for name in names})
