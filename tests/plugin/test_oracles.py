"""Each shipped policy against scripted models with declared faults, through the real gate and the shipped suites.

The suites run whole, over fewer settings, and all models of a policy in one run, which prints the decision about each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import oracles
from pytest_vlmrobust.datasets.collection import COLLECTIONS
from pytest_vlmrobust.perturbations import catalog
from pytest_vlmrobust.shipped import shipped

from .people import People

PEOPLE = 60
QUESTIONS = 300
"""Of each kind: with fewer a perfect model is not shown to keep the bounds of ``default``."""
NO_SHARE = 0.8
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
NOT_GO = f"{NO_GO} or {OPEN}"
FINE = f"{GO} or {OPEN}"
"""Of a good model: what so few samples leave open is no fault."""

TABLE: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "default": (
        ("--vlm-dataset=choice.jsonl", "--vlm-dataset=people", "test_corruptions.py", "test_observatory.py"),
        {
            "perfect": GO,
            "normal": FINE,
            "constant": NO_GO,
            "majority": NO_GO,
            "guesser": NO_GO,
            "weak_family": NO_GO,
            "churner": NO_GO,
            "severe_half": NO_GO,
            "illusion_blind": NO_GO,
            "one_cell": NO_GO,
            "one_group": NO_GO,
            "hint_only": NOT_GO,
        },
    ),
    "observatory": (
        ("--vlm-dataset=people", "test_observatory.py"),
        {
            "perfect": GO,
            "normal": FINE,
            "constant": NO_GO,
            "guesser": NO_GO,
            "illusion_blind": NO_GO,
            "one_cell": NO_GO,
            "one_group": NO_GO,
            "hint_only": NO_GO,
        },
    ),
    "robustbench": (
        ("--vlm-dataset=choice.jsonl", "test_corruptions.py"),
        {
            "perfect": GO,
            "normal": FINE,
            "constant": NOT_GO,
            "majority": NOT_GO,
            "guesser": NOT_GO,
            "weak_family": NO_GO,
            "churner": NOT_GO,
            "severe_half": NOT_GO,
        },
    ),
    "ci-smoke": (
        ("--vlm-dataset=choice.jsonl", "test_corruptions.py"),
        {
            "perfect": GO,
            "normal": GO,
            "constant": NO_GO,
            "majority": NO_GO,
            "guesser": NO_GO,
            "weak_family": NO_GO,
        },
    ),
    "pcri": (
        ("--vlm-dataset=choice.jsonl", "--vlm-patches=2,3", "test_patches.py"),
        {
            "perfect": GO,
            "neutral_identical": FINE,
            "neutral_independent": FINE,
            "normal": FINE,
            "constant": NOT_GO,
            "majority": NOT_GO,
            "guesser": NOT_GO,
            "distracted": NOT_GO,
        },
    ),
    "rci": (
        ("--vlm-dataset=no.jsonl", "--vlm-patches=2,3", "test_patches.py"),
        {
            "perfect": GO,
            "constant": NOT_GO,
            "majority": NOT_GO,
            "guesser": NOT_GO,
            "distracted": NOT_GO,
        },
    ),
    "resbench": (
        ("--vlm-dataset=shapes", "test_resolution.py"),
        {
            "perfect": FINE,
            "normal": FINE,
            "constant": NOT_GO,
            "majority": NOT_GO,
            "guesser": NOT_GO,
            "zig_zag": NOT_GO,
            "falling": NOT_GO,
        },
    ),
    "strict": (
        ("--vlm-dataset=shapes", "--vlm-patches=2,3", "test_corruptions.py", "test_patches.py", "test_resolution.py"),
        {
            "perfect": FINE,
            "normal": FINE,
            **dict.fromkeys(
                ("constant", "majority", "guesser", "distracted", "weak_family", "churner", "severe_half", "zig_zag", "falling"),
                NOT_GO,
            ),
        },
    ),
}
"""Policy to what it runs on, and what it has to decide about good models, and about those whose fault it claims to see.

The neutral models are no reference for ``rci`` here: right on 70 %, they know less than the answer that 80 % of these data have.
``resbench`` and ``strict`` run on the 128 embedded shapes, which leave also a perfect model undecided.
"""
QUICK: Mapping[str, tuple[str, ...]] = {
    "observatory": ("perfect", "illusion_blind", "one_cell"),
    "robustbench": ("perfect", "constant", "severe_half"),
    "ci-smoke": ("perfect", "constant", "weak_family"),
    "pcri": ("perfect", "neutral_independent", "constant", "distracted"),
    "rci": ("perfect", "constant"),
}
"""The models by which each run of the tests asks a policy; the slow tests ask by all of the table."""


class Lab:
    """A project with questions about noise, of which no perturbation changes an answer but by the model's script."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        (self.path / "suites").mkdir()
        for suite in shipped("suites").glob("test_*.py"):
            (self.path / "suites" / suite.name).write_text(suite.read_text(encoding="utf-8"), encoding="utf-8")
        rng = np.random.default_rng(3)
        (self.path / "pictures").mkdir()
        for number in range(QUESTIONS):
            Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(self.path / "pictures" / f"{number}.png")
        letters = rng.integers(4, size=QUESTIONS)
        self.write("choice", lambda n: {"options": ["cat", "dog", "owl", "fox"], "answer": "ABCD"[letters[n]]})
        no = rng.permutation(QUESTIONS) < NO_SHARE * QUESTIONS
        self.write("no", lambda n: {"answer": "no" if no[n] else "yes"})

    def write(self, name: str, facts: Callable[[int], Mapping[str, object]]) -> None:
        rows = [{"id": f"q{n}", "image": f"pictures/{n}.png", "question": f"Is {n}?", **facts(n)} for n in range(QUESTIONS)]
        (self.path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def wrong(self, policy: str, models: Sequence[str]) -> Mapping[str, str]:
        """Returns the decisions of one run of the gate, as it prints them, that are not those of the table."""
        given, expected = TABLE[policy]
        suites = [one if one.startswith("--") else f"suites/{one}" for one in given]
        asked = [f"--vlm=scripted:oracle/{name}" for name in models]
        done = self.pytester.runpytest("-q", "-p", "no:randomly", *asked, f"--vlm-thresholds={policy}", *suites)
        said = re.findall(r"^decision about (\w+): (\S+)$", done.stdout.str(), re.MULTILINE)
        assert [name for name, _ in said] == list(models), done.stdout.str()
        return {name: decision for name, decision in said if decision not in expected[name].split(" or ")}


@pytest.fixture
def lab(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setitem(COLLECTIONS._things, "people", lambda: People(PEOPLE, ("light", "dark")))
    for name, settings in FEWER.items():
        monkeypatch.setitem(catalog.SETS, name, partial(list, settings))
    return Lab(pytester)


@pytest.mark.parametrize("policy", QUICK)
def test_a_policy_tells_a_good_model_from_the_faults_it_is_about(lab: Lab, policy: str) -> None:
    assert lab.wrong(policy, QUICK[policy]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("policy", TABLE)
def test_a_fault_that_a_policy_claims_to_see_is_never_go(lab: Lab, policy: str) -> None:
    assert lab.wrong(policy, list(TABLE[policy][1])) == {}


def test_every_oracle_and_every_policy_is_in_the_table() -> None:
    assert {oracle for _, decided in TABLE.values() for oracle in decided} == set(oracles())
    assert set(TABLE) | {"tiny"} == {path.stem for path in shipped("thresholds").glob("*.yaml")}
