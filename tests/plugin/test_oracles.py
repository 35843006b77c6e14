"""Each shipped policy against scripted models with declared faults, through the real gate and the shipped suites.

The suites run whole, over fewer settings, and all models of a policy in one run, whose results.json has the decision about each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import oracles
from pytest_vlmrobust.shipped import shipped

HERE = Path(__file__).parent
PEOPLE = 60
QUESTIONS = 300
"""Of each kind: with fewer a perfect model is not shown to keep the bounds of ``default``."""
NO_SHARE = 0.8
CONFTEST = f"""
import sys

sys.path.insert(0, {{here!r}})
from people import People

from pytest_vlmrobust.datasets import register_collection
from pytest_vlmrobust.perturbations import catalog

register_collection("people", lambda: People({PEOPLE}, ("light", "dark")))
named = ("gaussian_blur", "brightness", "jpeg_compression")
levels = [f"{{{{name}}}}:{{{{level}}}}" for name in named for level in ("low", "mid", "high")]
catalog.SETS["robustbench"] = lambda: [*levels, "autocontrast", "flip_v"]
catalog.SETS["observatory_id"] = lambda: ["observatory_posterize"]
catalog.SETS["observatory_ood"] = lambda: ["standin_halftone"]
"""
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
"""Policy to what it runs on, and what it has to decide about each model whose fault it claims to see."""
FAST = ("observatory",)


class Lab:
    """A project with questions about noise, of which no perturbation changes an answer but by the model's script."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "suites").mkdir()
        for suite in shipped("suites").glob("test_*.py"):
            (path / "suites" / suite.name).write_text(suite.read_text(encoding="utf-8"), encoding="utf-8")
        (path / "suites" / "conftest.py").write_text(CONFTEST.format(here=str(HERE)), encoding="utf-8")
        rng = np.random.default_rng(3)
        (path / "pictures").mkdir()
        for number in range(QUESTIONS):
            Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(path / "pictures" / f"{number}.png")
        letters = rng.integers(4, size=QUESTIONS)
        self.write("choice", lambda n: {"options": ["cat", "dog", "owl", "fox"], "answer": "ABCD"[letters[n]]})
        no = rng.permutation(QUESTIONS) < NO_SHARE * QUESTIONS
        self.write("no", lambda n: {"answer": "no" if no[n] else "yes"})
        self.decisions = cache(self._decisions)

    def write(self, name: str, facts: Callable[[int], Mapping[str, object]]) -> None:
        rows = [{"id": f"q{n}", "image": f"pictures/{n}.png", "question": f"Is {n}?", **facts(n)} for n in range(QUESTIONS)]
        (self.path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def _decisions(self, policy: str) -> Mapping[str, str]:
        given, expected = TABLE[policy]
        options = [one for one in given if one.startswith("--")]
        suites = [f"suites/{one}" for one in given if not one.startswith("--")]
        models = [f"--vlm=scripted:oracle/{name}" for name in expected]
        report = self.path / f"report-{policy}"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *models, *options]
        command += [f"--vlm-thresholds={policy}", f"--vlm-report={report}", *suites]
        environment = {name: text for name, text in os.environ.items() if name not in {"PYTEST_ADDOPTS", "GITHUB_STEP_SUMMARY"}}
        done = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        assert report.is_dir(), done.stdout + done.stderr
        found = json.loads((report / "results.json").read_text(encoding="utf-8"))["decisions"]
        return {name: str(found[name]) for name in expected}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("oracles"))


def cases() -> list[object]:
    return [
        pytest.param(
            policy,
            oracle,
            expected,
            id=f"{policy}-{oracle}",
            marks=[] if policy in FAST else [pytest.mark.slow],
        )
        for policy, (_, decided) in TABLE.items()
        for oracle, expected in decided.items()
    ]


@pytest.mark.parametrize(("policy", "oracle", "expected"), cases())
def test_a_fault_that_a_policy_claims_to_see_is_never_go(lab: Lab, policy: str, oracle: str, expected: str) -> None:
    assert lab.decisions(policy)[oracle] in expected.split(" or ")


def test_every_oracle_and_every_policy_is_in_the_table() -> None:
    named = {oracle for _, decided in TABLE.values() for oracle in decided}
    assert named == set(oracles())
    assert set(TABLE) | {"tiny"} == {path.stem for path in shipped("thresholds").glob("*.yaml")}
