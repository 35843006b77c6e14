"""The suite of patches from the command line: its grids, stopping early, and what the run leaves behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.prediction import Request

from .conftest import SAMPLES, Project, ends

SUITE = """
import pytest


@pytest.mark.vlm_settings("patches")
def test_cell(vlm_cell):
    vlm_cell.check()
"""
RIGHT = [{"sample": f"q{number}", "answer": "A"} for number in range(0, SAMPLES, 2)]
"""Of a model that says B otherwise."""
WRONG = [{"setting": "patches:2", "sample": f"q{number}", "answer": "BA"[number % 2]} for number in range(SAMPLES)]
POLICY = "version: 1\nrules:\n  - {id: pcri, metric: pcri, judge: point, within: [-1, 1]}\n"


@pytest.fixture
def patched(project: Project) -> Project:
    """A gate of patches, on a model that is right from the whole picture and from every patch; each letter is as often right."""
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", POLICY)
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row | {"answer": "AB"[number % 2]} for number, row in enumerate(rows)]
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    project.script(*RIGHT)
    return project


def records(project: Project) -> dict[str, dict[str, Any]]:
    return {record["setting"]: record for record in project.results("report")["records"]}


def test_grids_are_two_and_three_unless_said(patched: Project) -> None:
    patched.run("--vlm-report=report").assert_outcomes(passed=2)
    assert [*records(patched)] == ["patches:2", "patches:3"]
    patched.run("--vlm-report=report", "--vlm-patches=2,4").assert_outcomes(passed=2)
    by_setting = records(patched)
    assert [*by_setting] == ["patches:2", "patches:4"]
    assert (by_setting["patches:2"]["n_inferred"], by_setting["patches:4"]["n_requested"]) == (0, 8 * 16)
    assert len(by_setting["patches:4"]["positions"]) == 16


def test_grids_may_stand_in_the_ini_file(patched: Project) -> None:
    patched.write("pytest.ini", "[pytest]\nvlm_patches = 5\nvlm_patch_stop = true\n")
    patched.run("--vlm-report=report").assert_outcomes(passed=1)
    assert records(patched)["patches:5"]["n_requested"] == 8


def test_a_grid_that_is_none_ends_the_run_before_any_test(patched: Project) -> None:
    result = ends(patched.run("--vlm-patches=2,9"), pytest.ExitCode.USAGE_ERROR)
    result.stderr.fnmatch_lines(
        ["ERROR: --vlm-patches '2,9': '9' is not a grid. Expected patches on a side, one or several of 2, 3*"]
    )


def test_stopping_changes_the_inferences_and_not_the_index(patched: Project) -> None:
    patched.run("--vlm-report=report", "--vlm-patch-stop").assert_outcomes(passed=2)
    stopped = records(patched)["patches:3"]
    assert (stopped["n_requested"], stopped["positions"]) == (8, [])
    assert (
        "patches:3: 8 of 72 patches were asked about, 64 after a right one were not (89 % saved); the share of each position "
        "needs every patch: run without --vlm-patch-stop" in stopped["notes"]
    )
    patched.run("--vlm-report=report").assert_outcomes(passed=2)
    full = records(patched)["patches:3"]
    assert (full["n_requested"], full["n_recalled"], full["n_inferred"]) == (72, 8, 64)
    assert len(full["positions"]) == 9
    named = ("accuracy", "accuracy_drop", "pcri", "rci", "pcri_excess")
    early, whole = (
        {each["metric"]: each for each in record["measures"] if each["metric"] in named} for record in (stopped, full)
    )
    assert set(early) == set(named)
    assert early == whole


def test_a_picture_smaller_than_the_grid_is_an_error_that_names_the_sample(patched: Project) -> None:
    Image.new("RGB", (3, 40)).save(patched.path / "pictures" / "5.png")
    result = patched.run("--vlm-patches=4")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*sample 'q5': patches:4: got an image of 3 x 40 pixels. Expected sides of at least 4*"])
    assert result.ret == 11


def test_pictures_of_examples_stand_in_the_store(patched: Project) -> None:
    patched.script(*WRONG, *RIGHT)
    patched.run("--vlm-report=report", "--vlm-patches=2")
    examples = records(patched)["patches:2"]["examples"]
    assert [example["kind"] for example in examples] == ["whole_only"] * 4
    folder = Path(patched.path / ".vlmrobust" / "pictures")
    named = {picture["file"] for example in examples for picture in example["pictures"]}
    assert named == {path.name for path in folder.iterdir()}
    assert len(named) == 4 * 5
    assert [picture["frame"] for picture in examples[0]["pictures"]] == ["right", *["wrong"] * 4]
    patched.run("--vlm-report=again", "--vlm-patches=2", "--vlm-offline")
    again = patched.results("again")["records"][0]["examples"]
    assert again == examples


class Answer(Protocol):
    """Whether a scripted model is right about a sample, by its number and what it is shown."""

    __name__: str

    def __call__(self, number: int, request: Request, /) -> bool: ...


WORDS = "open"
"""Questions whose answers are all different, so that nobody is right without looking."""


def coin(number: int, request: Request) -> bool:
    """Is right on every other view, by a coin that its pixels throw."""
    return hashlib.sha256(request.images[0].tobytes() + bytes([number % 251])).digest()[0] % 2 == 0


def steady(number: int, request: Request) -> bool:
    """Is right about the same three fifths of the samples in every view."""
    return number % 5 < 3


def distracted(number: int, request: Request) -> bool:
    """Is right about three fifths from the whole picture, however it is shifted, and about 19 of 20 from the first quarter."""
    if request.images[0].shape[0] == SIDE:
        return number % 5 < 3
    return number % 20 != 0 and request.images[0][0, 0].tolist() == [number % 256, number // 256, 7]


def needy(number: int, request: Request) -> bool:
    """Is right about 19 of 20 from the whole picture, and about every fourth from a patch."""
    return number % 20 != 0 if request.images[0].shape[0] == SIDE else number % 4 == 0


def always_no(number: int, request: Request) -> bool:
    """Says "No", whatever it is asked."""
    raise AssertionError(number, request)


SIDE, SAMPLED = 8, 200


@pytest.fixture
def furnish(project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Runs the shipped suite under a policy on 200 pictures of noise and a model that is right when ``answer`` says so."""
    shutil.copy(Path(__file__).parents[2] / "suites" / "test_patches.py", project.path / "suite" / "test_patches.py")
    (project.path / "suite" / "test_suite.py").unlink()

    def run(answer: Answer, policy: str, *arguments: str, task: str = WORDS, noes: int = 5) -> pytest.RunResult:
        """Asks open questions, or such of yes and no that are No but for every ``noes``-th."""
        targets = [f"word{number}" if task == WORDS else "no" if number % noes else "yes" for number in range(SAMPLED)]
        rows = []
        for number, target in enumerate(targets):
            pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            pixels[0, 0] = (number % 256, number // 256, 7)
            Image.fromarray(pixels).save(project.path / "pictures" / f"{number}.png")
            facts = {
                "id": f"q{number}",
                "image": f"pictures/{number}.png",
                "question": f"Number {number}?",
                "answer": target,
                "task": "open",
            }
            rows.append(facts | ({} if task == WORDS else {"task": task}))
        project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

        def script(request: Request) -> str:
            number = int(request.sample_id[1:])
            if answer is always_no:
                return "No"
            other = {"yes": "no", "no": "yes"}.get(targets[number], "nothing")
            return targets[number] if request.images and answer(number, request) else other

        backend = ScriptedBackend(script, version=answer.__name__)
        monkeypatch.setattr(ScriptedBackend, "from_file", lambda *_args, **_facts: backend)
        return project.run(f"--vlm-thresholds={policy}", "--vlm-report=report", "--vlm-threads=2", *arguments)

    monkeypatch.setattr(Project, "run", _run_without_policy)
    return run


def _run_without_policy(self: Project, *arguments: str) -> pytest.RunResult:
    fixed = ("--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "-p", "no:randomly", "suite")
    return self.pytester.runpytest(*fixed, *arguments)


def measured(project: Project) -> dict[tuple[str, str], dict[str, Any]]:
    entries = project.results("report")["records"]
    return {(record["setting"], measure["metric"]): measure for record in entries for measure in record["measures"]}


@pytest.mark.parametrize("policy", ["pcri", "rci"])
def test_whoever_always_says_no_is_no_go_where_four_fifths_are_no(
    project: Project, furnish: Callable[..., pytest.RunResult], policy: str
) -> None:
    assert furnish(always_no, policy, "--vlm-patches=2", task="yes_no").ret == 10
    measures = measured(project)
    for metric in ("accuracy_above_chance", "visual_gain"):
        assert (measures["", metric]["value"], measures["", metric]["outcome"]) == (0.0, "INCONCLUSIVE")
    assert measures["patches:2", "pcri_matched"]["value"] is None
    assert (
        "the full-image score of 80.0 % is below 85.7 % (chance 80.0 %, always 'No' gets 80.0 % of 200 yes/no questions, plus"
        in (measures["patches:2", "pcri_matched"]["reason"])
    )


@pytest.mark.parametrize(
    ("answer", "expected", "index"),
    [(coin, 0, 0.0), (steady, 0, 0.0), (distracted, 1, 1 - 0.95 / 0.6), (needy, 0, 1 - 0.25 / 0.95)],
    ids=["independent views", "identical views", "distracted", "needs the whole"],
)
@pytest.mark.parametrize("policy", ["pcri", pytest.param("rci", marks=pytest.mark.slow)])
def test_what_blocks_is_how_much_context_costs_beyond_luck(
    project: Project,
    furnish: Callable[..., pytest.RunResult],
    policy: str,
    answer: Answer,
    expected: int,
    index: float,
) -> None:
    assert furnish(answer, policy, "--vlm-patches=2").ret == expected
    measures = measured(project)
    matched = measures["patches:2", "pcri_matched"]
    assert matched["value"] == pytest.approx(index, abs=0.06 if answer is coin else 1e-9)
    assert matched["outcome"] == ("FAIL" if expected else "PASS")
    if answer is coin:
        assert measures["patches:2", "pcri"]["high"] < -0.5, "raw, the luck of four attempts looks like distraction"


def test_where_guesses_explain_every_patch_distraction_is_undecided_and_no_go(
    project: Project, furnish: Callable[..., pytest.RunResult]
) -> None:
    """Four guesses at yes or no are right in 15 of 16; a model that is shown to be distracted on open questions is not here."""
    assert furnish(distracted, "pcri", "--vlm-patches=2", task="yes_no", noes=2).ret == 10
    matched = measured(project)["patches:2", "pcri_matched"]
    assert (matched["value"], matched["outcome"]) == (pytest.approx(1 - 0.95 / 0.6), "INCONCLUSIVE")


def test_attempts_are_asked_for_by_an_option_where_no_rule_does(
    project: Project, furnish: Callable[..., pytest.RunResult]
) -> None:
    project.write("policy.yaml", POLICY)
    furnish(steady, "policy.yaml", "--vlm-patches=2")
    assert ("patches:2", "pcri_matched") not in measured(project)
    furnish(steady, "policy.yaml", "--vlm-patches=2", "--vlm-patch-attempts")
    assert measured(project)["patches:2", "pcri_matched"]["value"] == 0.0


def test_a_run_with_attempts_can_be_verified(project: Project, furnish: Callable[..., pytest.RunResult]) -> None:
    from pytest_vlmrobust.evaluation.after.verification import verify
    from pytest_vlmrobust.store import last_records

    project.write("policy.yaml", POLICY)
    furnish(coin, "policy.yaml", "--vlm-patches=2", "--vlm-patch-stop", "--vlm-patch-attempts")
    run = project.the_run
    verification = verify(run, last_records(run))
    assert (verification.differences, verification.records) == ((), 4)


def test_attempts_are_part_of_the_plan(project: Project, furnish: Callable[..., pytest.RunResult]) -> None:
    plain = furnish(steady, "ci-smoke", "--vlm-patches=2", "--vlm-plan")
    plain.stdout.fnmatch_lines(["1,200 inferences, *"])  # clean, no_image and four patches
    result = furnish(steady, "pcri", "--vlm-patches=2", "--vlm-plan")
    result.stdout.fnmatch_lines(["2,000 inferences, *"])
