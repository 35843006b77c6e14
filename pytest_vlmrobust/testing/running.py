"""How a property is tried: on generated examples, the same ones each time, and reported with the smallest that breaks it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from pytest_vlmrobust.core.errors import UnknownName

PROFILES = {"vlm-fast": 12, "vlm-thorough": 300}
"""Hypothesis profiles of the suite of property checks: how many examples they try for each property."""
VARIABLE = "VLMROBUST_PROFILE"
"""Environment variable that names one of them."""

_ALWAYS: dict[str, Any] = {
    "phases": (Phase.generate, Phase.shrink),
    "deadline": None,
    "derandomize": True,
    "database": None,
    "report_multiple_bugs": False,
    "verbosity": Verbosity.quiet,  # the message shows the example itself
    "suppress_health_check": (HealthCheck.too_slow,),  # a busy machine says nothing about a metric
}

for _name, _examples in PROFILES.items():
    settings.register_profile(_name, max_examples=_examples, **_ALWAYS)


def examples_of(profile: str | None = None) -> int:
    """Returns how many examples a Hypothesis profile tries for each property.

    Args:
        profile: what ``--hypothesis-profile`` says; when empty, the environment variable ``VLMROBUST_PROFILE`` holds, and without
            it ``vlm-fast``.

    Raises:
        UnknownName: the environment variable names no profile of this package.
    """
    if profile:
        return settings.get_profile(profile).max_examples
    name = os.environ.get(VARIABLE) or next(iter(PROFILES))
    if name not in PROFILES:
        raise UnknownName("profile", name, PROFILES, where=VARIABLE)
    return PROFILES[name]


def tried(name: str, strategy: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> None:
    """Runs ``check`` on examples of ``strategy``, and on ever smaller ones where one does not hold.

    Raises:
        AssertionError: it does not hold for the smallest example found, which the message shows; or the metric called ``name``
            answers differently when it is asked again.
    """
    __tracebackhide__ = True

    @settings(max_examples=examples, **_ALWAYS)
    @given(strategy)
    def attempt(example: Any) -> None:
        check(example)

    try:
        attempt()
    except Flaky as error:
        raise AssertionError(f"metric {name!r} fails for some scores and not when it is asked for the same ones again") from error
    except AssertionError as error:
        raise AssertionError(str(error)) from error.__cause__


def fails(name: str, problem: str, example: str) -> NoReturn:
    """Raises the AssertionError that says what a metric does not hold, and for which scores."""
    __tracebackhide__ = True
    raise AssertionError(f"metric {name!r} {problem}\n    called with {example}")
