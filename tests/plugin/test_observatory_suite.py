"""The suite of the Perceptual Observatory from the command line, on eight faces and models that follow scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import COLLECTIONS, resolve_collection
from pytest_vlmrobust.datasets.faces_folder import FaceFolder
from pytest_vlmrobust.datasets.images import FileImage
from pytest_vlmrobust.datasets.sampling import chosen
from pytest_vlmrobust.evaluation.after.verification import verify
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.pictures import parts_of
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.store import last_records

from .conftest import ALONE, UNUSED, WORKERS_IF_SLOW, ends
from .people import Face, People

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
RELATIVE = "version: 1\ndefaults: {judge: point}\nrules:\n"
CONFTEST = """
from people import People

from pytest_vlmrobust.datasets import register_collection

register_collection("people", People, replace=True)
"""
BLIND = ({"setting": "no_image", "text": "Find the box", "answer": "[]"}, {"setting": "no_image", "answer": "A"})
TASKS = ("matching", "pointing", "guided", "semi_guided")
CELLS = 4 * (2 + len(SPLITS))
SWEEPS = 4 * 2 * 3 + 4 * 2 * 2 + 3 + 2 + 3

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


@cache
def matching() -> list[Rule]:
    """Returns the right answer to each sample of matching."""
    return rules("matching", "Which option", right)


@cache
def localising() -> list[Rule]:
    """Returns the right answer to each sample of pointing, and of drawing boxes."""
    return [*rules("pointing", "Which cell", right), *rules("guided", "Find the box", right)]


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
        self.write(f"{name}.yaml", json.dumps({"rules": [*BLIND, *first, *matching(), *localising()]}))

    def keep(self, *tests: str) -> None:
        """Leaves some of the suite's test functions."""
        file = self.path / "suite" / "test_observatory.py"
        head, *functions = file.read_text(encoding="utf-8").split("\n\n\n@pytest")
        kept = [function for function in functions if any(f"def {test}(" in function for test in tests)]
        assert len(kept) == len(tests)
        file.write_text("\n\n\n@pytest".join([head, *kept]), encoding="utf-8")

    def run(self, *arguments: str) -> pytest.RunResult:
        options = ["--vlm-dataset=people", "--vlm-thresholds=policy.yaml", "--vlm-report=report", "-v", "-p", "no:randomly"]
        return self.pytester.runpytest(*options, *UNUSED, "suite", *arguments)

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        text = (self.path / "report" / "results.json").read_text(encoding="utf-8")
        return {record["id"]: record for record in json.loads(text)["records"]}


@pytest.fixture
def observatory(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Observatory:
    monkeypatch.setattr(COLLECTIONS, "_things", COLLECTIONS.loaded_things())  # the suite's own is gone after the test
    return Observatory(pytester)


def value(record: Mapping[str, Any]) -> float:
    (number,) = [measure["value"] for measure in record["measures"] if measure["metric"] == record["metric"]]
    return float(number)


def test_a_model_that_is_right_is_go(observatory: Observatory) -> None:
    observatory.script("scripted")
    result = ends(observatory.run("--vlm=scripted:scripted.yaml"), 0)
    result.assert_outcomes(passed=CELLS + SWEEPS)
    for name in ("matching-clean", "pointing-no_image", "guided-standin_halftone", "semi_guided-hint_gain-clean"):
        result.stdout.re_match_lines_random([rf".*\[scripted-people\.{re.escape(name)}\].*"])
    records = observatory.records
    assert len(records) == CELLS + SWEEPS
    assert value(records["scripted-people.matching-identity_accuracy-clean"]) == 1.0
    dropped = {records[f"scripted-people.{task}-identity_drop-{split}"]["outcome"] for task in TASKS for split in SPLITS}
    assert dropped == {"PASS"}
    result.stdout.fnmatch_lines(["warning 2 of 7 rules applied to no test of scripted: thinking, size. Not measured: *", "GO *"])


def test_planted_biases_fail_where_they_are_and_nowhere_else(observatory: Observatory) -> None:
    posterize, halftone = SPLITS
    missed = rules("matching", "Which option", lambda sample: "BCDA"["ABCD".index(right(sample))], posterize)
    men = [rule for rule in missed if int(rule["sample"][1:]) % 2]
    observatory.script("biased", *rules("pointing", "Which cell", cornered, halftone), *men)
    observatory.write("idle.yaml", json.dumps({"default": "A", "rules": [*BLIND, {"text": "Find the box", "answer": "[]"}]}))
    assert observatory.run("--vlm=scripted:biased.yaml", "--vlm=scripted:idle.yaml").ret == 1
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
    assert "cannot do the task: 0.25 with the images, 0.25 without" in unasked["reason"]
    assert value(records["idle-people.pointing-identity_accuracy-clean"]) == 0.25


def test_attributes_and_positions_are_shown_for_each_group_of_people(observatory: Observatory) -> None:
    """Under one illusion half of the mouth of men is drawn, and men are always seen in the first cell."""

    def half_a_mouth(sample: Sample) -> str:
        boxes = json.loads(right(sample))
        if sample.keys["group"] == "male":
            boxes["mouth"]["x2"] = (boxes["mouth"]["x1"] + boxes["mouth"]["x2"]) / 2
        return json.dumps(boxes)

    posterize, halftone = SPLITS
    men = {sample.id for sample in samples_of("pointing") if sample.keys["group"] == "male"}
    corner = [rule for rule in rules("pointing", "Which cell", cornered, halftone) if rule["sample"] in men]
    observatory.script("biased", *rules("guided", "Find the box", half_a_mouth, halftone), *corner)
    observatory.keep("test_identity", "test_position")
    observatory.run("--vlm=scripted:biased.yaml", "--vlm-mode=full", "-k", "guided and not semi or pointing")
    text = (observatory.path / "report" / "results.json").read_text(encoding="utf-8")
    rows = {(row["name"], row["dataset"], row["part"]): row for row in json.loads(text)["analyses"]}

    def values(name: str, task: str, part: str) -> dict[str, float]:
        numbers: dict[str, float] = rows[name, f"people.{task}", part]["values"]
        return numbers

    five = {"lowest": 0.5, "lower_quartile": 0.5, "median": 0.75, "upper_quartile": 1.0, "highest": 1.0}
    assert values("attributes", "guided", f"mouth, {halftone}") == pytest.approx(
        {"mean_overlap": (4 * 0.5 + 4) / 8, "signed_gap by group": 0.5 - 1.0, **five}
    )
    for part in (f"nose, {halftone}", "mouth, clean", f"mouth, {posterize}"):
        assert values("attributes", "guided", part)["mean_overlap"] == pytest.approx(1.0)
        assert values("attributes", "guided", part)["signed_gap by group"] == pytest.approx(0.0)
    assert values("group_gaps", "pointing", f"group, {halftone}")["signed_gap"] == pytest.approx(0.25 - 1.0)
    overlap = values("group_gaps", "guided", f"group, {halftone}")
    assert (overlap["mean of male"], overlap["mean of female"]) == pytest.approx(((3 + 0.5) / 4, 1.0))
    assert overlap["signed_gap"] == pytest.approx(-0.125)
    assert values("position_gaps", "pointing", f"male, {halftone}") == pytest.approx({"accuracy": 0.25, "position_gap": 1.0})
    assert values("position_gaps", "pointing", f"female, {halftone}") == pytest.approx({"accuracy": 1.0, "position_gap": 0.0})
    assert {row["cells"] for (name, *_), row in rows.items() if name == "attributes"} == {8}
    page = (observatory.path / "report" / "report.html").read_text(encoding="utf-8")
    assert "Attributes that are to be found" in page
    assert "Gaps between positions, by group of people" in page
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    assert verify(run, last_records(run)).differences == ()


@pytest.mark.parametrize("failing", ["clean", "no_image"])
def test_inferences_that_fail_are_named_wherever_something_rests_on_them(observatory: Observatory, failing: str) -> None:
    once = {"setting": failing, "sample": matching()[-1]["sample"], "error": "too slow"}
    failures = (once, {"setting": failing, "error": "the endpoint is down"})
    observatory.write("failing.yaml", json.dumps({"rules": [*failures, *BLIND, *matching()]}))
    observatory.keep("test_cell", "test_robustness")
    assert observatory.run("--vlm=scripted:failing.yaml", "-k", "matching").ret == EXIT_CODES[Decision.INCOMPLETE]
    records = observatory.records
    n_requested = records[f"failing-people.matching-{failing}"]["n_requested"]
    said = f"no sample was scored: all {n_requested} inferences failed; most often: the endpoint is down"
    for split in SPLITS:
        cell = records[f"failing-people.matching-{split}"]
        assert (cell["outcome"], cell["n_requested"]) == ("ERROR", 0)
        assert cell["reason"] == f"failing-people.matching-{failing}: {said}"
        sweep = records[f"failing-people.matching-identity_drop-{split}"]
        assert sweep["outcome"] == "ERROR"
        assert "most often: the endpoint is down" in sweep["reason"]
    assert records[f"failing-people.matching-{failing}"]["outcome"] == "ERROR"
    assert "cannot do the task" not in json.dumps(list(records.values()))
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    assert verify(run, last_records(run)).differences == ()


def test_what_was_lost_since_an_earlier_run_is_gated_by_split(observatory: Observatory) -> None:
    posterize, halftone = SPLITS
    observatory.keep("test_cell", "test_since_baseline")
    observatory.script("then")
    observatory.run("--vlm=scripted:then.yaml", "--vlm-report=then").assert_outcomes(passed=CELLS)
    missed = rules("matching", "Which option", lambda sample: "BCDA"["ABCD".index(right(sample))], posterize)
    observatory.script("now", *missed[:4])
    scope = f"where: {{setting: {posterize}}}"
    observatory.write("policy.yaml", f"{RELATIVE}  - {{id: mean, metric: mean_baseline_drop, {scope}, max: 10pp}}\n")
    result = observatory.run("--vlm=scripted:now.yaml", "--vlm-baseline=then", "-k", "since_baseline")
    result.assert_outcomes(failed=1, passed=4 * 2 - 1, deselected=CELLS)
    records = observatory.records
    lost = 4 / len(missed)
    assert value(records[f"now-people.matching-mean_baseline_drop-{posterize}"]) == pytest.approx(lost)
    outcomes = {
        split: {records[f"now-people.{task}-mean_baseline_drop-{split}"]["outcome"] for task in TASKS} for split in SPLITS
    }
    assert outcomes == {posterize: {"FAIL", "PASS"}, halftone: {"MEASURED"}}


def test_sizes_of_a_family_and_a_thinking_twin_are_compared(observatory: Observatory) -> None:
    wrong = [{**rule, "answer": "BCDA"["ABCD".index(str(rule["answer"]))]} for rule in matching()]
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
    result = ends(
        observatory.run("--vlm-models=models.yaml", *named), 10, "INCONCLUSIVE  no failures, but no rule judged small, large"
    )
    result.assert_outcomes(passed=4 * 3 + 4 * 3 * 2)
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    warnings = json.loads((run / "manifest.json").read_text())["warnings"]  # the page only counts so many
    assert any(warning.startswith("7 of 7 rules applied to no test of small: ") for warning in warnings)
    assert {
        "6 of 7 rules applied to no test of large: originals, drop, place, people, kept, thinking",
        "6 of 7 rules applied to no test of thinks: originals, drop, place, people, kept, size",
    } <= {warning.partition(". Not measured: ")[0] for warning in warnings}
    records = observatory.records
    for split in ("clean", *SPLITS):
        assert value(records[f"thinks-people.matching-thinking_gain-{split}"]) == 0.25
        chains = records[f"thinks-people.matching-thinking_gain-{split}"]["chains"]
        assert {name.partition(",")[0] for name in chains} == {"fixes", "keeps"}
        assert value(records[f"oracle-people.matching-scale_gain-{split}"]) == pytest.approx(0.125)
        assert value(records[f"oracle-people.matching-scale_consistency-{split}"]) == 1.0
        assert value(records[f"oracle-people.guided-scale_gain-{split}"]) == pytest.approx(0.0, abs=1e-6)
    assert {record["outcome"] for record in records.values()} <= {"PASS", "MEASURED"}


def test_a_gain_of_text_over_letters_is_no_gain_of_thinking(observatory: Observatory) -> None:
    letters = [{"letter" if key == "answer" else key: value for key, value in rule.items()} for rule in matching()]
    observatory.script("plain", *letters)
    observatory.script("thinks")
    entries = {"plain": {"path": "plain.yaml"}, "thinks": {"path": "thinks.yaml", "prompt_mode": "thinking"}}
    models = {
        name: {"backend": "scripted", "family": "oracle", "parameters_billion": 4, **entry} for name, entry in entries.items()
    }
    observatory.write("models.yaml", json.dumps({"models": models}))
    observatory.keep("test_thinking")
    arguments = ["--vlm-models=models.yaml", "--vlm=plain", "--vlm=thinks", "-k", "matching and clean"]
    assert observatory.run(*arguments).ret == 11
    (record,) = observatory.records.values()
    assert record["outcome"] == "ERROR"
    assert "the choices were not answered in one way (by text: thinks; by letters: plain)" in record["reason"]
    assert "--vlm-answer=text is what every model can do" in record["reason"]
    observatory.run(*arguments, "--vlm-answer=text")
    (record,) = observatory.records.values()
    assert (record["outcome"], value(record)) == ("PASS", 0.0)


class Folder:
    """A folder of six people, of whom some have boxes, and the suite on originals alone."""

    NOTES = ("1 of 6 rows have no group", "the group 'b' has 1 member", "none is given has 1 member")

    def __init__(self, observatory: Observatory, boxed: int) -> None:
        self.observatory, path = observatory, observatory.path / "crew"
        path.mkdir()
        lines = ["file,identity,group,left_eye,right_eye,nose,mouth"]
        for number, group in enumerate(("a", "a", "a", "a", "b", "")):
            pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
            Image.fromarray(pixels).save(path / f"{number}.png")
            boxes = '"20,30,40,40","50,30,70,40","40,40,50,60","30,70,60,80"' if number < boxed else ",,,"
            lines.append(f"{number}.png,p{number},{group},{boxes}")
        (path / "faces.csv").write_text("\n".join(lines), encoding="utf-8")
        observatory.keep("test_cell", "test_hint")
        observatory.write("idle.yaml", json.dumps({"default": "A"}))

    def run(self, *arguments: str) -> pytest.RunResult:
        options = ["--vlm-thresholds=policy.yaml", "--vlm-report=report", "-p", "no:randomly", "-Werror"]
        run = self.observatory.pytester.runpytest
        return run(*options, *UNUSED, "--vlm=scripted:idle.yaml", "--vlm-dataset=crew", "suite", *arguments)


def test_without_boxes_what_asks_for_them_does_not_apply_and_says_what_to_add(observatory: Observatory) -> None:
    result = ends(Folder(observatory, boxed=0).run(), EXIT_CODES[Decision.INCONCLUSIVE])
    result.assert_outcomes(passed=4, skipped=4 + 8 + 3)
    records = observatory.records
    boxed = [record for record in records.values() if "guided" in record["id"]]
    assert len(boxed) == 2 * 4 + 3
    assert {(record["outcome"], record["n_requested"]) for record in boxed} == {("NOT_APPLICABLE", 0)}
    for record in boxed:
        reason = record["reason"]
        assert "boxes are asked for, and none of 6 identities has them (the first, 'p0', has no boxes). Write the boxes" in reason
        assert "or name MediaPipe's model file as `landmarks` in faces.yaml (pip install 'mediapipe>=" in reason
    assert {record["outcome"] for record in records.values() if "guided" not in record["id"]} <= {"MEASURED", "NOT_APPLICABLE"}
    assert "left out" not in result.stdout.str()
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    verification = verify(run, last_records(run))
    assert (verification.differences, verification.records) == ((), len(records))


def test_gaps_in_several_groupings_share_one_level(observatory: Observatory) -> None:
    path = observatory.path / "crew"
    path.mkdir()
    lines = ["file,identity,group,sex,age"]
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
        Image.fromarray(pixels).save(path / f"{number}.png")
        lines.append(
            f"{number}.png,p{number},{'ab'[number % 2]},{'fm'[number // 12]},{('young', 'middle', 'old', '')[number % 4]}"
        )
    (path / "faces.csv").write_text("\n".join(lines), encoding="utf-8")
    (path / "faces.yaml").write_text("groupings: [sex, age]", encoding="utf-8")
    other = resolve_collection("words_160")
    assert other is not None
    samples = list(task_dataset("matching", FaceFolder(path, "crew"), other).samples())
    wrong = {"p0", "p1", "p4", "p13"}
    answers = {sample.id: "ABCD"[("ABCD".index(str(sample.target)) + (sample.group in wrong)) % 4] for sample in samples}
    blind = {"setting": "no_image", "answer": "A"}
    observatory.write(
        "model.yaml", json.dumps({"rules": [blind, *({"sample": name, "answer": answer} for name, answer in answers.items())]})
    )
    observatory.keep("test_identity")
    options = ["--vlm-thresholds=policy.yaml", "--vlm-report=report", "--vlm-mode=full", "-p", "no:randomly", "-k", "matching"]
    observatory.pytester.runpytest(*options, *UNUSED, "--vlm=scripted:model.yaml", "--vlm-dataset=crew", "suite")

    results = json.loads((observatory.path / "report" / "results.json").read_text())
    rows = {row["part"]: row for row in results["analyses"] if row["name"] == "group_gaps"}
    assert {*rows} == {f"{name}, {split}" for name in ("group", "sex", "age") for split in ("clean", *SPLITS)}
    gaps = {name: rows[f"{name}, clean"]["values"]["gap"] for name in ("group", "sex", "age")}
    by_age = {"young": 4 / 6, "middle": 4 / 6, "old": 1.0}  # 0 and 4 are young, 1 and 13 middle-aged
    assert rows["sex, clean"]["values"]["signed_gap"] == pytest.approx(1 / 12 - 3 / 12 + 2 * (3 / 12 - 1 / 12))  # m minus f
    means = {name: rows["age, clean"]["values"][f"mean of {name}"] for name in by_age}
    assert means == pytest.approx(by_age)
    assert gaps == pytest.approx({"group": 0.0, "sex": 3 / 12 - 1 / 12, "age": max(by_age.values()) - min(by_age.values())})
    assert [rows[f"{name}, clean"]["cells"] for name in gaps] == [24, 24, 18]

    right = np.array([float(sample.group not in wrong) for sample in samples])
    ids = [sample.group for sample in samples]
    table = ScoreTable(
        right,
        no_image=np.zeros(24),
        by_setting={"clean": right},
        groups=ids,
        people=["fm"[int(name[1:]) // 12] for name in ids],
    )
    alone, shared = (metrics.estimate("split_group_gap", table, confidence=level) for level in (0.90, 1 - 0.1 / 3))
    sex = rows["sex, clean"]["values"]
    assert (sex["low"], sex["high"]) == pytest.approx((shared.low, shared.high))
    assert sex["high"] - sex["low"] > alone.high - alone.low

    record = observatory.records["model-crew.matching-split_group_gap-clean"]
    assert [measure["category"] for measure in record["measures"]] == ["", "group", "age", "sex"]
    assert {measure["rule"] for measure in record["measures"][1:]} == {""}
    assert any(note.startswith("sex: f 0.750 [") and ", m 0.917 [" in note for note in record["notes"])
    assert "Gaps between groups of people" in (observatory.path / "report" / "report.html").read_text()
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    assert verify(run, last_records(run)).differences == ()


@pytest.mark.parametrize("workers", [ALONE, WORKERS_IF_SLOW])
def test_what_a_folder_notes_is_said_once(observatory: Observatory, workers: tuple[str, ...]) -> None:
    result = ends(Folder(observatory, boxed=4).run(*workers), EXIT_CODES[Decision.INCONCLUSIVE])
    (run,) = (observatory.path / ".vlmrobust" / "runs").iterdir()
    warnings = json.loads((run / "manifest.json").read_text())["warnings"]  # the page only counts so many
    text = "\n".join([*warnings, result.stdout.str(), result.stderr.str()])
    left_out = "crew: 2 of 6 identities are left out where boxes are asked for (the first, 'p4', has no boxes)"
    assert [text.count(note) for note in (*Folder.NOTES, left_out)] == [1, 1, 1, 1]
    assert "DatasetWarning" not in text
    assert observatory.records["idle-crew.guided-clean"]["n_requested"] == 4


def test_notes_are_about_what_runs_and_stand_in_the_plan(observatory: Observatory) -> None:
    folder = Folder(observatory, boxed=0)
    text = folder.run("-k", "guided", "--vlm-plan").stdout.str()
    assert [text.count(note) for note in Folder.NOTES] == [1, 0, 0]
    assert text.count("nothing is asked: crew.guided: boxes are asked for, and none of 6 identities has them") == 1
    text = folder.run("-k", "matching", "--vlm-plan").stdout.str()
    assert [text.count(note) for note in Folder.NOTES] == [1, 1, 1]
    assert "nothing is asked" not in text


def test_one_task_of_a_folder_cannot_be_named_as_data(observatory: Observatory) -> None:
    result = Folder(observatory, boxed=0).run("--vlm-dataset=crew.guided")
    ends(result, 4, "ERROR: --vlm-dataset 'crew.guided': *choose tests with -k crew.guided. But nothing can be asked *")


def test_a_face_that_changes_in_mid_run_is_refused_in_every_collage(observatory: Observatory) -> None:
    """The clean cell is about the old face: no other one may be compared with it."""
    folder = observatory.path / "people"
    folder.mkdir()
    for number in range(24):
        Image.fromarray(Face(number).load()).resize((96, 96)).save(folder / f"p{number}.png")
    rows = "".join(f"p{number}.png,p{number},{'ab'[number % 2]}\n" for number in range(24))
    observatory.write("people/faces.csv", f"file,identity,group\n{rows}")
    other, collection = (resolve_collection(name) for name in ("words_160", folder))
    assert collection is not None
    assert other is not None
    samples = chosen(task_dataset("pointing", collection, other), "8")
    shown = [source.path for sample in samples for source in sample.images if isinstance(source, FileImage)]
    beside = [part.path for sample in samples for part in parts_of(sample.images[1]) if isinstance(part, FileImage)]
    face = next(path for path in beside if path not in shown)
    hook = f"""
import shutil


def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("pointing-clean]"):
        shutil.copy({str(shown[0])!r}, {str(face)!r})
"""
    observatory.write("suite/conftest.py", hook)
    answers = [{"sample": sample.id, "text": "Which cell", "answer": right(sample)} for sample in samples]
    observatory.write("model.yaml", json.dumps({"rules": [*BLIND, *answers]}))
    observatory.write("policy.yaml", "version: 1\nrules: [{id: r, metric: accuracy_drop, max: 5pp}]\n")
    observatory.keep("test_cell")
    assert observatory.run("--vlm=scripted:model.yaml", "--vlm-sample=8", "-k", "pointing").ret == EXIT_CODES[Decision.INCOMPLETE]
    records = observatory.records
    assert records["model-people.pointing-clean"]["outcome"] != "ERROR"
    for split in SPLITS:
        cell = records[f"model-people.pointing-{split}"]
        assert cell["outcome"] == "ERROR"
        assert f"{face.name} was changed while the run was reading it. Start the run again" in cell["reason"]
