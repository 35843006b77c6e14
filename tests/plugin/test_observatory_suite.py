"""The suite of the Perceptual Observatory from the command line, on eight faces and models that follow scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import resolve_collection
from pytest_vlmrobust.evaluation.tasks import task_dataset

from .people import People

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "suites" / "test_observatory.py"
SETS = '("observatory_id", "observatory_ood")'
SPLITS = ("observatory_posterize", "standin_halftone")
POLICY = """
version: 1
defaults: {judge: point}
rules:
  - {id: originals, metric: identity_accuracy, where: {setting: clean}, min: 80%}
  - {id: drop, metric: identity_drop, max: 20pp}
  - {id: place, metric: split_position_gap, max: 20pp}
  - {id: people, metric: split_group_gap, max: 20pp}
  - {id: kept, metric: split_transfer_retention, min: 0.8}
  - {id: thinking, metric: thinking_gain, min: 0pp}
  - {id: size, metric: scale_consistency, min: 100%}
"""
CONFTEST = """
from people import People

from pytest_vlmrobust.datasets import register_collection

register_collection("people", People)
"""
BLIND = ({"setting": "no_image", "text": "Find the box", "answer": "[]"}, {"setting": "no_image", "answer": "A"})
TASKS = ("matching", "pointing", "guided", "semi_guided")
CELLS = 4 * (2 + len(SPLITS))
SWEEPS = 4 * 2 * 3 + 4 * 2 + 3 + 2 + 3

Rule = Mapping[str, Any]
Answer = Callable[[Sample], str]


def right(sample: Sample) -> str:
    if sample.localisation is None:
        return str(sample.target)
    corners = ("x1", "y1", "x2", "y2")
    return json.dumps({name: dict(zip(corners, box, strict=True)) for name, box in sample.localisation.boxes.items()})


def cornered(sample: Sample) -> str:
    return next(letter for letter, cell in sample.options.items() if cell == "[0,0]")


def samples_of(task: str) -> Iterator[Sample]:
    other = resolve_collection("words_160")
    assert other is not None
    yield from task_dataset(task, People(), other).samples()


def rules(task: str, says: str, answer: Answer, setting: str = "*") -> list[Rule]:
    """Returns a rule for each sample of a task, which prompts are told by what they say."""
    return [{"sample": sample.id, "setting": setting, "text": says, "answer": answer(sample)} for sample in samples_of(task)]


MATCHING = rules("matching", "Which option", right)
POINTING = rules("pointing", "Which cell", right)
BOXES = rules("guided", "Find the box", right)


class Observatory:
    """A project with the suite, shortened to two settings, and the collection."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester, self.path = pytester, pytester.path
        suite = SUITE.read_text(encoding="utf-8")
        assert suite.count(SETS) == 1
        self.write("suite/test_observatory.py", suite.replace(SETS, repr(SPLITS)))
        self.write("suite/people.py", (HERE / "people.py").read_text(encoding="utf-8"))
        self.write("suite/conftest.py", f"import sys\n\nsys.path.insert(0, {str(self.path / 'suite')!r})\n{CONFTEST}")
        self.write("policy.yaml", POLICY)

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def script(self, name: str, *first: Rule) -> None:
        """Writes a model that is right with the pictures, but for the rules that come first, and says A or nothing without."""
        self.write(f"{name}.yaml", json.dumps({"rules": [*BLIND, *first, *MATCHING, *POINTING, *BOXES]}))

    def keep(self, *tests: str) -> None:
        """Leaves some of the suite's test functions."""
        file = self.path / "suite" / "test_observatory.py"
        head, *functions = file.read_text(encoding="utf-8").split("\n\n\n@pytest")
        kept = [one for one in functions if any(f"def {test}(" in one for test in tests)]
        assert len(kept) == len(tests)
        file.write_text("\n\n\n@pytest".join([head, *kept]), encoding="utf-8")

    def run(self, *arguments: str) -> pytest.RunResult:
        options = ["--vlm-dataset=people", "--vlm-thresholds=policy.yaml", "--vlm-report=report", "-v", "-p", "no:randomly"]
        return self.pytester.runpytest_subprocess(*options, "suite", *arguments)

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        text = (self.path / "report" / "results.json").read_text(encoding="utf-8")
        return {record["id"]: record for record in json.loads(text)["records"]}


@pytest.fixture
def observatory(pytester: pytest.Pytester) -> Observatory:
    return Observatory(pytester)


def value(record: Mapping[str, Any]) -> float:
    (found,) = [one["value"] for one in record["measures"] if one["metric"] == record["metric"]]
    return float(found)


def test_a_model_that_is_right_is_go(observatory: Observatory) -> None:
    observatory.script("scripted")
    result = observatory.run("--vlm=scripted:scripted.yaml")
    assert result.ret == 0
    result.assert_outcomes(passed=CELLS + SWEEPS)
    for name in ("matching-clean", "pointing-no_image", "guided-standin_halftone", "semi_guided-hint_gain-clean"):
        result.stdout.re_match_lines_random([rf".*\[scripted-people\.{re.escape(name)}\].*"])
    records = observatory.records
    assert len(records) == CELLS + SWEEPS
    assert value(records["scripted-people.matching-identity_accuracy-clean"]) == 1.0
    dropped = {records[f"scripted-people.{task}-identity_drop-{split}"]["outcome"] for task in TASKS for split in SPLITS}
    assert dropped == {"PASS"}
    result.stdout.fnmatch_lines(["warning 2 of 7 rules met no test of scripted: thinking, size", "GO *"])


def test_planted_biases_fail_where_they_are_and_nowhere_else(observatory: Observatory) -> None:
    posterize, halftone = SPLITS
    missed = rules("matching", "Which option", lambda sample: "BCDA"["ABCD".index(right(sample))], posterize)
    men = [rule for rule in missed if int(rule["sample"][1:]) % 2]
    observatory.script("biased", *rules("pointing", "Which cell", cornered, halftone), *men)
    observatory.write("idle.yaml", json.dumps({"default": "A", "rules": [*BLIND, {"text": "Find the box", "answer": "[]"}]}))
    result = observatory.run("--vlm=scripted:biased.yaml", "--vlm=scripted:idle.yaml", "-n2")
    assert result.ret == 1
    records = observatory.records
    assert len(records) == 2 * (CELLS + SWEEPS)
    assert {name for name, record in records.items() if record["outcome"] == "FAIL" and record["model"] == "biased"} == {
        f"biased-people.{name}"
        for name in (
            f"pointing-identity_drop-{halftone}",
            f"pointing-split_position_gap-{halftone}",
            f"matching-identity_drop-{posterize}",
            f"matching-split_group_gap-{posterize}",
        )
    }
    gap = records[f"biased-people.matching-split_group_gap-{posterize}"]
    assert value(gap) == 1.0
    assert any("female 1.000" in note and ", male 0.000" in note for note in gap["notes"])
    unasked = records[f"idle-people.pointing-{posterize}"]
    assert (unasked["outcome"], unasked["n_inferred"]) == ("NOT_APPLICABLE", 0)
    assert "not shown to do the task: 0.25 with the pictures, 0.25 without" in unasked["reason"]
    assert value(records["idle-people.pointing-identity_accuracy-clean"]) == 0.25


def test_sizes_of_a_family_and_a_thinking_twin_are_compared(observatory: Observatory) -> None:
    wrong = [{**rule, "answer": "BCDA"["ABCD".index(str(rule["answer"]))]} for rule in MATCHING]
    observatory.script("small", *wrong[:4])
    observatory.script("large", *wrong[:2])
    observatory.script("thinks")
    entries = {
        "small": {"path": "small.yaml", "parameters_billion": 1},
        "large": {"path": "large.yaml", "parameters_billion": 4},
        "thinks": {"path": "thinks.yaml", "parameters_billion": 4, "prompt_mode": "thinking"},
    }
    models = {name: {"backend": "scripted", "family": "oracle", **entry} for name, entry in entries.items()}
    observatory.write("models.yaml", json.dumps({"models": models}))
    named = [f"--vlm={name}" for name in models]
    observatory.keep("test_thinking", "test_scale")
    result = observatory.run("--vlm-models=models.yaml", *named)
    assert result.ret == 0
    result.assert_outcomes(passed=4 * 3 + 4 * 3 * 2)
    result.stdout.fnmatch_lines(
        [
            "warning 7 of 7 rules met no test of small: *",
            "warning 6 of 7 rules met no test of large: originals, drop, place, people, kept, thinking",
            "warning 6 of 7 rules met no test of thinks: originals, drop, place, people, kept, size",
        ]
    )
    records = observatory.records
    for split in ("clean", *SPLITS):
        assert value(records[f"thinks-people.matching-thinking_gain-{split}"]) == 0.25
        assert value(records[f"oracle-people.matching-scale_gain-{split}"]) == pytest.approx(0.125)
        assert value(records[f"oracle-people.matching-scale_consistency-{split}"]) == 1.0
        assert value(records[f"oracle-people.guided-scale_gain-{split}"]) == pytest.approx(0.0, abs=1e-6)
    assert {record["outcome"] for record in records.values()} <= {"PASS", "MEASURED"}
