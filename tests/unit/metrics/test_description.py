from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import Metric, Needs
from pytest_vlmrobust.metrics.description import describe, number, plain

NEEDS = (Needs.CLEAN, Needs.PERTURBED, Needs.NO_IMAGE)


def bare(*_: Any) -> float:
    return math.nan


def documented(*_: Any) -> float:
    """How far a thing moves.

    Beware of :func:`bare` and
    of ``small`` samples.

    Formula: ``mean(clean) -
    mean(perturbed)``

    Args:
        clean: scores.

    Returns:
        A fraction; NaN for
        no samples.

    Raises:
        ValueError: unequal lengths.

    Source: a paper.

    >>> documented()
    nan
    """
    return math.nan


def test_a_docstring_is_taken_apart() -> None:
    about = describe(Metric("mine", documented, NEEDS))
    assert (about.name, about.summary) == ("mine", "How far a thing moves.")
    assert about.formula == "mean(clean) - mean(perturbed)"
    assert about.caveats == ("Beware of `bare` and of `small` samples.",)
    assert dict(about.facts)["value"] == "A fraction; NaN for no samples."


def test_facts_are_those_of_the_record() -> None:
    record = Metric(
        "mine",
        documented,
        NEEDS,
        better="lower",
        bounds=(-math.inf, 1.0),
        perfect=0.0,
        blind=math.nan,
        validity="there is something",
        monotone={Needs.CLEAN: 1},
        not_monotone={Needs.NO_IMAGE: "it may"},
    )
    facts = dict(describe(record).facts)
    assert facts["reads"] == "`clean`, `perturbed`, `no_image`"
    assert facts["bounds"] == "-∞ … 1"
    assert (facts["better"], facts["perfect model"], facts["no visual gain"]) == ("lower", "0", "undefined")
    assert "nothing changes" not in facts
    assert facts["one better score"] == "rises with `clean`; falls with `perturbed`; moves either way with `no_image` (it may)"
    assert facts["interval"].startswith("none: a rule judges its value (`judge: point`)")
    assert (facts["of"], facts["suite"], facts["defined when"]) == ("one setting", "every", "there is something")


def test_a_metric_without_a_docstring_has_facts_all_the_same() -> None:
    about = describe(Metric("mine", bare, (Needs.CLEAN,)))
    assert (about.summary, about.formula, about.caveats) == ("", "", ())
    assert dict(about.facts)["of"] == "all settings of a model on a data set"


def test_an_interval_without_a_docstring_is_its_own() -> None:
    def interval(*_: Any) -> tuple[float, float]:
        return 0.0, 1.0

    assert dict(describe(Metric("mine", bare, NEEDS, interval=interval)).facts)["interval"] == "its own"


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("name", metrics.names())
def test_text_keeps_its_width(name: str, width: int) -> None:
    about = describe(metrics.get(name))
    text = about.text(width)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.split())
    assert about.formula
    assert all(" ".join(part.split()) in said for part in (about.summary, *about.caveats) if "-" not in part)


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("pcri", "n*n attempts beat one even for a model that guesses"),
        ("absolute_continuous_error", "on a flat curve it is all noise"),
        ("worst_case_drop", "too large on average (the winner's curse)"),
        ("relative_corruption_error", "The smaller the visual gain, the more noise"),
        ("mean_corruption_error", "only if reference model, samples and settings are the same"),
    ],
)
def test_what_to_beware_of_is_said(name: str, warning: str) -> None:
    assert warning in " ".join(describe(metrics.get(name)).caveats)


def test_numbers_and_roles_in_words() -> None:
    assert [number(value) for value in (0.5, -math.inf, math.nan)] == ["0.5", "-∞", "undefined"]
    assert plain(":func:`~pytest_vlmrobust.metrics.pcri`\n and ``x``") == "`pytest_vlmrobust.metrics.pcri` and `x`"
