"""Each shipped policy against scripted models with declared faults, through the real gate and the shipped suites.

The suites run whole, over fewer settings, and all models of a row in one run, which prints the decision about each. Runs are
deterministic, so that the table holds what each of them decides, and not only what it must not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import oracles
from pytest_vlmrobust.datasets.protocol import COLLECTIONS
from pytest_vlmrobust.evaluation.power.published import published_profiles
from pytest_vlmrobust.perturbations import catalog
from pytest_vlmrobust.shipped import shipped

from .people import People

FIRST_SHARE = 0.45
"""Of right answers that are the first of four options: who always gives that one seems to gain by pictures."""
NO_SHARE = 0.8
SQUARE, WIDE = (12, 12), (8, 1344)
"""Height and width of pictures; the wide ones have each size of the ladder, and hardly more pixels than those need."""
FEWER: Mapping[str, tuple[str, ...]] = {
    "robustbench": (
        *(f"gaussian_blur:{level}" for level in ("low", "mid", "high")),
        *(f"brightness:{level}" for level in ("mid", "high")),
        "autocontrast",
        "flip_v",
    ),
    "observatory_id": ("observatory_posterize",),
    "observatory_ood": ("standin_halftone",),
}
"""Of the settings of the suites: each family, each level, and what the scripts name."""

GO, NO_GO, OPEN = "GO", "NO-GO", "INCONCLUSIVE"
CORRUPTIONS, PATCHES, SIZES, OBSERVATORY = "corruptions", "patches", "resolution", "observatory"
EVERYWHERE = (CORRUPTIONS, PATCHES, SIZES, OBSERVATORY)
BLIND = ("constant", "majority", "picture_present", "guesser")
FAULTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(BLIND, EVERYWHERE),
    **dict.fromkeys(("weak_family", "churner", "severe_half"), (CORRUPTIONS,)),
    "distracted": (PATCHES,),
    **dict.fromkeys(("zig_zag", "falling"), (SIZES,)),
    **dict.fromkeys(("illusion_blind", "illusion_guesser", "one_cell", "one_group", "hint_only"), (OBSERVATORY,)),
}
"""Faulty oracles, and the suites that show what is wrong with them: in the others they are good models, and no row has them."""
GOOD: Mapping[str, Sequence[str]] = {
    "perfect": EVERYWHERE,
    "normal": EVERYWHERE,
    **dict.fromkeys(("neutral_identical", "neutral_independent"), (PATCHES,)),
}
"""Oracles without a fault, and where they say something: neutral ones are about how patches compare with the whole."""
OTHER_MODELS = {"parity", "confident", "options", "typographic", "wording"}
"""Policies about an earlier run, probabilities of letters, and whole questions.

``test_parity``, ``test_confidence`` and ``test_whole_questions`` have the models.
"""
REFERENCE = "tiny"
"""The embedded model, of which alone the policy of its name speaks."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run of the gate, and what it decides about each model; ``quick`` ones are asked about in every run of the tests."""

    policy: str
    data: Sequence[str]
    suites: Sequence[str]
    decisions: Mapping[str, str]
    quick: Sequence[str] = ()
    questions: int = 300
    people: int = 60

    @property
    def about(self) -> str:
        return f"{self.policy}-{'-'.join(self.data)}-{len(self.decisions)}-models"


TABLE = (
    Row(
        "default",
        ("choice", "people"),
        (CORRUPTIONS, OBSERVATORY),
        {
            "perfect": GO,
            "normal": OPEN,
            **dict.fromkeys(BLIND, NO_GO),
            **dict.fromkeys(("weak_family", "churner", "severe_half"), NO_GO),
            **dict.fromkeys(("illusion_blind", "illusion_guesser", "one_cell", "one_group", "hint_only"), NO_GO),
        },
    ),
    Row("default", ("choice", "people"), (CORRUPTIONS, OBSERVATORY), {"normal": GO}, questions=853, people=150),
    Row(
        "observatory",
        ("people",),
        (OBSERVATORY,),
        {
            "perfect": GO,
            "normal": OPEN,
            **dict.fromkeys(BLIND, NO_GO),
            **dict.fromkeys(("illusion_blind", "illusion_guesser", "one_cell", "one_group", "hint_only"), NO_GO),
        },
        quick=("perfect", "illusion_guesser", "one_cell"),
    ),
    Row("observatory", ("people",), (OBSERVATORY,), {"normal": GO}, people=150),
    Row(
        "robustbench",
        ("choice",),
        (CORRUPTIONS,),
        {
            "perfect": GO,
            "normal": GO,
            **dict.fromkeys(BLIND, NO_GO),
            **dict.fromkeys(("weak_family", "churner", "severe_half"), NO_GO),
        },
        quick=("perfect", "picture_present", "severe_half"),
    ),
    Row(
        "ci-smoke",
        ("choice",),
        (CORRUPTIONS,),
        {
            "perfect": GO,
            "normal": GO,
            **dict.fromkeys(BLIND, NO_GO),
            **dict.fromkeys(("weak_family", "churner", "severe_half"), NO_GO),
        },
        quick=("perfect", "constant", "churner"),
        questions=200,
    ),
    Row(
        "tiny",
        ("shapes",),
        (CORRUPTIONS,),
        {
            "tiny": GO,
            "perfect": OPEN,
            "normal": OPEN,
            **dict.fromkeys(BLIND, OPEN),
            **dict.fromkeys(("weak_family", "churner", "severe_half"), OPEN),
        },
    ),
    Row(
        "pcri",
        ("choice",),
        (PATCHES,),
        {
            **dict.fromkeys(("perfect", "normal", "neutral_identical", "neutral_independent"), GO),
            **dict.fromkeys(BLIND, NO_GO),
            "distracted": OPEN,
        },
        quick=("perfect", "neutral_independent", "constant", "distracted"),
    ),
    Row(
        "rci",
        ("choice",),
        (PATCHES,),
        {
            **dict.fromkeys(("perfect", "normal", "neutral_identical", "neutral_independent"), GO),
            **dict.fromkeys(BLIND, NO_GO),
            "distracted": OPEN,
        },
    ),
    Row(
        "rci",
        ("no",),
        (PATCHES,),
        {"perfect": GO, "normal": OPEN, **dict.fromkeys(BLIND, NO_GO), "distracted": NO_GO},
        quick=("perfect", "constant"),
    ),
    Row(
        "resbench",
        ("wide",),
        (SIZES,),
        {"perfect": GO, "normal": GO, **dict.fromkeys(BLIND, NO_GO), "zig_zag": NO_GO, "falling": NO_GO},
    ),
    Row(
        "strict",
        ("wide",),
        (CORRUPTIONS, PATCHES, SIZES),
        {
            "perfect": GO,
            "normal": OPEN,
            "neutral_identical": GO,
            "neutral_independent": NO_GO,  # to draw each answer anew is churn under corruptions
            **dict.fromkeys(BLIND, NO_GO),
            **dict.fromkeys(("weak_family", "churner", "severe_half", "distracted", "zig_zag", "falling"), NO_GO),
        },
        questions=200,
    ),
    Row("strict", ("wide",), (CORRUPTIONS, PATCHES, SIZES), {"normal": GO}, questions=2000),
)
"""What each policy decides about every oracle whose fault its suites ask for, and about good ones.

On data that are 80 % No, good models that are right in 80 % or less know no more than who says it always: the neutral ones are
not asked there, and ``normal`` is left open. Where so few samples leave ``normal`` open, a row of its own has enough for it.
"""


def _choices(count: int, rng: np.random.Generator) -> list[dict[str, object]]:
    rest = (1.0 - FIRST_SHARE) / 3.0
    letters = rng.choice(list("ABCD"), count, p=[FIRST_SHARE, rest, rest, rest])
    return [{"options": ["cat", "dog", "owl", "fox"], "answer": str(letter)} for letter in letters]


def _mostly_no(count: int, rng: np.random.Generator) -> list[dict[str, object]]:
    return [{"answer": "no" if place < NO_SHARE * count else "yes"} for place in rng.permutation(count)]


ANSWERS: Mapping[str, Callable[[int, np.random.Generator], list[dict[str, object]]]] = {
    "choice": _choices,
    "wide": _choices,
    "no": _mostly_no,
}


class Lab:
    """A project with questions about noise, of which no perturbation changes an answer but by the model's script."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.monkeypatch = pytester, monkeypatch
        self.path = pytester.path
        (self.path / "suites").mkdir()
        for suite in shipped("suites").glob("test_*.py"):
            (self.path / "suites" / suite.name).write_text(suite.read_text(encoding="utf-8"), encoding="utf-8")

    def written(self, name: str, questions: int) -> str:
        """Returns what ``--vlm-dataset`` takes: a file, which is written now, or a collection or embedded data by its name."""
        if name not in ANSWERS:
            return name
        rng = np.random.default_rng(3)
        facts, size = ANSWERS[name](questions, rng), WIDE if name == "wide" else SQUARE
        (self.path / name).mkdir()
        for number in range(questions):
            Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(self.path / name / f"{number}.png", compress_level=0)
        rows = [{"id": f"q{n}", "image": f"{name}/{n}.png", "question": f"Is {n}?", **fact} for n, fact in enumerate(facts)]
        (self.path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return f"{name}.jsonl"

    def decided(self, row: Row, models: Sequence[str]) -> Mapping[str, str]:
        """Returns the decisions of one run of the gate, as it prints them."""
        models_options = [f"--vlm={name if name == REFERENCE else f'scripted:oracle/{name}'}" for name in models]
        data = [f"--vlm-dataset={self.written(name, row.questions)}" for name in row.data]
        suites = [f"suites/test_{name}.py" for name in row.suites]
        self.monkeypatch.setitem(COLLECTIONS._things, "people", lambda: People(row.people, ("light", "dark")))
        done = self.pytester.runpytest(
            *("-q", "-p", "no:randomly", "--vlm-patches=2", f"--vlm-thresholds={row.policy}"), *models_options, *data, *suites
        )
        of_each, of_one = (
            r"^decision about (\w+): (\S+)(?: \(\w+\))?$",
            rf"^()({GO}|{NO_GO}|{OPEN})(?: \(\w+\))?  ",
        )  # the only model is not named
        matches = re.findall(of_each if len(models) > 1 else of_one, done.stdout.str(), re.MULTILINE)
        said = {name or models[0]: decision for name, decision in matches}
        assert list(said) == sorted(models), done.stdout.str()
        return said


@pytest.fixture
def lab(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    published_profiles()  # over all settings, before a set has fewer
    for name, settings in FEWER.items():
        monkeypatch.setitem(catalog.SETS, name, partial(list, settings))
    return Lab(pytester, monkeypatch)


def _about(row: Row) -> str:
    return row.about


@pytest.mark.study
@pytest.mark.parametrize("row", [row for row in TABLE if row.quick], ids=_about)
def test_a_policy_tells_a_good_model_from_the_faults_it_is_about(lab: Lab, row: Row) -> None:
    assert lab.decided(row, row.quick) == {name: row.decisions[name] for name in row.quick}


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids=_about)
def test_the_table_of_policies_and_oracles(lab: Lab, row: Row) -> None:
    assert lab.decided(row, list(row.decisions)) == row.decisions


@pytest.mark.parametrize("row", TABLE, ids=_about)
def test_no_policy_says_go_to_a_fault(row: Row) -> None:
    assert [name for name in FAULTS if row.decisions.get(name) == GO] == []


@pytest.mark.parametrize("policy", sorted({path.stem for path in shipped("thresholds").glob("*.yaml")} - OTHER_MODELS))
def test_each_policy_is_asked_about_each_fault_that_its_suites_show_and_passes_a_good_model(policy: str) -> None:
    rows = [row for row in TABLE if row.policy == policy]
    suites = {suite for row in rows for suite in row.suites}
    shown = {name for name, where in (*FAULTS.items(), *GOOD.items()) if suites & {*where}}
    assert {name for row in rows for name in row.decisions} - {REFERENCE} == shown
    passing = {name for row in rows for name, decision in row.decisions.items() if decision == GO}
    assert passing >= (set() if policy == REFERENCE else {"perfect"})


def test_every_oracle_has_a_fault_or_none() -> None:
    assert {*FAULTS, *GOOD} == set(oracles())
    assert not set(FAULTS) & set(GOOD)
