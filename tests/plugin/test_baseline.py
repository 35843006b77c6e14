"""An earlier run as the bar: what broke since then fails, and only a person may move the bar."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.after.verification import verify
from pytest_vlmrobust.store import Evidence, Journal, last_records
from tests.small_gate import write_questions

from .conftest import SAMPLES, SUITE, WORKERS_IF_SLOW, Project, ends, execute, make_project

RULES = """
version: 1
defaults: {judge: point}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 10%}
  - {id: loss, metric: baseline_drop, max: 10pp}
  - {id: mean, metric: mean_baseline_drop, max: 10pp}
"""
TESTS = 6 + 2
SWEEPS = """
import pytest


@pytest.mark.vlm_settings({names})
@pytest.mark.vlm_metrics("mean_baseline_drop", "mean_drop")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""


@pytest.fixture
def compared(pytester: pytest.Pytester) -> Project:
    project = make_project(pytester, ())
    project.write("policy.yaml", RULES)
    project.write("suite/test_suite.py", SUITE.replace('"visual_gain")', '"visual_gain", "mean_baseline_drop")'))
    return project


def records(project: Project, out: str = "out") -> dict[str, Record]:
    lines = json.loads((project.path / out / "results.json").read_text())["records"]
    return {line["id"]: Record.from_json(json.dumps(line)) for line in lines}


def test_the_same_model_loses_nothing_and_a_worse_one_fails_on_the_mean_too(compared: Project) -> None:
    compared.run("--vlm-report=first").assert_outcomes(passed=TESTS)
    result = compared.run("--vlm-baseline=first", "--vlm-report=out")
    ends(result, 0, "compared with the baseline: 0 answers got worse, 0 got better (6 tests)").assert_outcomes(passed=TESTS + 1)
    values = {
        m.value for r in records(compared).values() for m in r.measures if "baseline" in m.metric or m.metric == "drop_increase"
    }
    assert values == {0.0}
    compared.script({"setting": "invert", "answer": "A"}, name="newer")
    worse = compared.run("--vlm-baseline=first", models=("newer",))
    mean = "*FAIL newer-data-mean_baseline_drop: mean_baseline_drop 25.0 pp > 10 pp (rule mean, policy.yaml:7)*"
    worse.stdout.fnmatch_lines([mean])


def test_a_setting_that_could_not_be_read_in_the_baseline_is_no_gain_in_the_mean(compared: Project) -> None:
    """Over 23 settings a mean gain of 4 pp would hide a mean loss of 3 pp, and 4 % of all answers is within the budget."""
    names = ", ".join(f'"rotate:degrees={angle}"' for angle in range(6, 29))
    compared.write("suite/test_suite.py", SWEEPS.format(names=names))
    compared.write("policy.yaml", RULES)
    compared.script({"setting": "rotate:degrees=7", "answer": "Hm."}, name="unread")
    compared.run("--vlm-report=first", models=("unread",))
    result = compared.run("--vlm-baseline=first")
    because = "the baseline is no bar: rotate:degrees=7: unparsed_rate 100.0 % *no answer could be read in 8 of 8 texts*"
    ends(result, 10, f"INCONCLUSIVE model-data-mean_baseline_drop: mean_baseline_drop *: {because}")


def test_a_worse_model_is_found_with_the_samples_that_broke(any_project: Project) -> None:
    project = any_project
    project.write("policy.yaml", RULES)
    project.script({"setting": "flip_v", "sample": "q7", "answer": "A"})
    project.run("--vlm-report=first")
    project.script({"setting": "invert", "sample": "q[25]", "answer": "A"}, name="newer")
    more = ("-v", "--vlm-baseline=first", "--vlm-report=out")
    result = ends(project.run(*more, models=("newer",)), 1, "*baseline_drop 25.0 pp > 10 pp (rule loss, policy.yaml:6)*")
    result.stdout.fnmatch_lines(["*broken since the baseline    q2, q5"])
    result.stdout.fnmatch_lines(["compared with the baseline: 2 answers got worse, 1 got better (6 tests)"])
    by_id = records(project)
    assert by_id["newer-data-invert"].broken == ("q2", "q5")
    assert by_id["newer-data-flip_v"].fixed == ("q7",)


def changed_questions(project: Project) -> None:
    """Removes the first four questions, and adds four."""
    data = project.path / "data.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    added = [{**line, "id": f"q{SAMPLES + number}", "question": f"New {number}?"} for number, line in enumerate(lines[:4])]
    data.write_text("\n".join(json.dumps(line) for line in [*lines[4:], *added]))


def test_a_test_set_that_grew_is_compared_on_its_common_samples(compared: Project, capsys: pytest.CaptureFixture[str]) -> None:
    compared.run("--vlm-report=first")
    changed_questions(compared)
    compared.script(*({"setting": "invert", "sample": name, "answer": "A"} for name in ("q5", "q9")), name="newer")
    refused = compared.run("--vlm-baseline=first", models=("newer",))
    refused.stdout.fnmatch_lines(["*4 are not in the baseline (q10, q11, q8 and 1 more)*--vlm-baseline-samples=common*"])
    options = ("--vlm-baseline=first", "--vlm-baseline-samples=common", "--vlm-report=out")
    result = compared.run(*options, models=("newer",))
    said = "data is compared with its baseline on 4 common samples: 4 of this run and 4 of the baseline are left out"
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*baseline_drop 25.0 pp > 10 pp (rule loss, policy.yaml:6)*"])
    by_id = records(compared)
    values = {m.metric: (m.value, m.n) for m in by_id["newer-data-invert"].measures}
    assert values["baseline_drop"] == (0.25, 4)
    assert values["accuracy"] == (0.75, 8)
    assert by_id["newer-data-invert"].broken == ("q5",)
    mean = next(m for m in by_id["newer-data-mean_baseline_drop"].measures if m.metric == "mean_baseline_drop")
    assert (mean.value, mean.n) == (0.25 / 4, 4)
    for name in ("newer-data-invert", "newer-data-clean", "newer-data-mean_baseline_drop"):
        assert said in by_id[name].notes
    for report in ("report.html", "summary.md", "results.json", "model_card.md", "junit.xml", "manifest.json", "cells.csv"):
        assert said in (compared.path / "out" / report).read_text()
    other = "the baseline has no model of this name: newer is compared with model, the only model there"
    assert (compared.path / "out" / "summary.md").read_text().count(other) == 1
    runs = (compared.path / ".vlmrobust" / "runs").iterdir()
    (run,) = [directory for directory in runs if '"vlm_baseline_samples": "common"' in (directory / "manifest.json").read_text()]
    assert verify(run, last_records(run)).differences == ()
    capsys.readouterr()
    assert main(["compare", str(compared.path / "first"), str(compared.path / "out")]) == 4
    assert "vlmrobust compare --samples=common" in capsys.readouterr().err
    runs_of = [str(compared.path / name) for name in ("first", "out")]
    assert main(["compare", *runs_of, "--samples=common", "--out", str(compared.path / "c")]) == 0
    assert said in capsys.readouterr().out.replace("\n", " ")
    written = json.loads((compared.path / "c" / "comparison.json").read_text())
    (cell,) = [change for change in written["cells"] if change["setting"] == "invert"]
    assert (cell["n"], cell["then"], cell["now"], cell["broken"]) == (4, 1.0, 0.75, ["q5"])
    assert said in written["notes"]


def test_few_common_samples_keep_no_bound_by_their_value(compared: Project) -> None:
    compared.run("--vlm-report=first")
    data = compared.path / "data.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    renamed = [{**line, "id": line["id"] if number < 3 else f"new{number}"} for number, line in enumerate(lines)]
    data.write_text("\n".join(map(json.dumps, renamed)))
    result = ends(compared.run("--vlm-baseline=first", "--vlm-baseline-samples=common"), 10)
    because = "the baseline has only 3 of 8 questions of data. Judge the interval instead (rule {}, policy.yaml:*)"
    result.stdout.fnmatch_lines([f"INCONCLUSIVE model-data-* and 5 more: baseline_drop is undefined: {because.format('loss')}"])
    result.stdout.fnmatch_lines([f"INCONCLUSIVE model-data-mean_baseline_drop: * is undefined: {because.format('mean')}"])


def test_questions_in_common_are_needed_and_must_be_the_same(compared: Project) -> None:
    compared.run("--vlm-report=first")
    common = ("--vlm-baseline=first", "--vlm-baseline-samples=common")
    data = compared.path / "data.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    data.write_text("\n".join(json.dumps({**line, "id": f"n{line['id']}"}) for line in lines))
    compared.run(*common).stdout.fnmatch_lines(["*of 8 samples here, 8 are not in the baseline*8 are only there*"])
    data.write_text("\n".join(json.dumps({**line, "question": "Another?"}) for line in lines[:4]))
    compared.run(*common).stdout.fnmatch_lines(["*of 4 samples here, 4 ask something else there*"])
    ends(compared.run("--vlm-baseline-samples=common"), 4, "*--vlm-baseline-samples needs --vlm-baseline DIR*")


def test_only_cells_that_the_baseline_has_are_counted(compared: Project) -> None:
    compared.run("--vlm-report=first", "-k", "clean or invert")
    result = compared.run("--vlm-baseline=first", "--vlm-report=out")
    said = "compared with the baseline: 0 answers got worse, 0 got better (3 tests); 3 tests could not be compared"
    result.stdout.fnmatch_lines([said])
    assert said in (compared.path / "out" / "summary.md").read_text()


def test_other_samples_are_no_verdict(compared: Project) -> None:
    compared.run("--vlm-report=first", "--vlm-sample=4")
    result = compared.run("--vlm-baseline=first")
    ends(result, 11, "*the baseline cannot be compared on data: of 8 samples here, 4 are not in the baseline*")


def test_exchanged_pictures_are_no_verdict_and_named(compared: Project) -> None:
    compared.run("--vlm-report=first")
    folder = compared.path / "pictures"
    (folder / "3.png").rename(folder / "old.png")
    shutil.copy(folder / "6.png", folder / "3.png")
    result = compared.run("--vlm-baseline=first", "--vlm-report=out")
    ends(
        result, 11, "*the baseline cannot be compared on data: of 8 samples here, 1 show other images there (q3)*the same images*"
    )
    unrelated = ("worst_case_drop", "visual_gain")
    assert {str(record.outcome) for record in records(compared).values() if record.metric not in unrelated} == {"ERROR"}
    assert main(["compare", str(compared.path / "first"), str(compared.path / "out")]) == 4


def test_a_folder_that_moved_and_a_column_that_changed_are_the_same_pictures(compared: Project) -> None:
    compared.run("--vlm-report=first")
    folder = compared.path / "pictures"
    for file in folder.iterdir():
        with Image.open(file) as picture:
            picture.save(file, compress_level=0)  # other bytes, the same pixels
    folder.rename(compared.path / "moved")
    text = (compared.path / "data.jsonl").read_text(encoding="utf-8")
    compared.write("data.jsonl", text.replace('"pictures/', '"moved/').replace('"even"', '"renamed"'))
    result = ends(compared.run("--vlm-baseline=first", "--vlm-store=another"), 0)
    result.stdout.no_fnmatch_line("*was not compared*")


def test_a_baseline_without_its_pictures_is_compared_with_a_warning(compared: Project) -> None:
    compared.run("--vlm-report=first")
    execute(compared.path / "first", "delete from pictures")
    result = compared.run("--vlm-baseline=first")
    ends(result, 0, "*the baseline does not say which images of data it showed (only a clean cell records them): whether they*")


SHIPPED = Path(__file__).parents[2] / "suites"
SPLITS = {"corruptions": "grayscale", "resolution": "ladder", "patches": "patches"}
"""Shipped suite to what its mean is taken over: corruptions are shortened to one."""


MEAN = """
version: 1
defaults: {judge: point}
rules:
  - {id: mean, metric: mean_baseline_drop, max: 2pp}
"""


@pytest.fixture
def shipped(compared: Project) -> Project:
    (compared.path / "suite" / "test_suite.py").unlink()
    for suite in SPLITS:
        text = (SHIPPED / f"test_{suite}.py").read_text(encoding="utf-8")
        compared.write(f"suite/test_{suite}.py", text.replace('"robustbench"', '"grayscale"'))
    for file in (compared.path / "pictures").iterdir():  # larger than the lowest rung, which then is a picture of its own
        with Image.open(file) as picture:
            picture.resize((160, 120)).save(file)
    compared.write("policy.yaml", MEAN)
    return compared


def test_the_mean_since_the_baseline_is_gated_in_each_shipped_suite(shipped: Project) -> None:
    result = shipped.run("--vlm-report=first", "-k", "test_cell or since_baseline")
    result.assert_outcomes(passed=3 + 12 + 2, deselected=result.parseoutcomes()["deselected"])  # no mean without a baseline
    shipped.script(
        *({"setting": setting, "sample": "q[0-3]", "answer": "A"} for setting in ("grayscale", "patches:2")),
        {"setting": "resolution:112", "sample": "q[0-3]", "answer": "A"},
        name="newer",
    )
    result = shipped.run("--vlm-baseline=first", "--vlm-report=out", "-k", "since_baseline", models=("newer",))
    result.assert_outcomes(failed=3, deselected=result.parseoutcomes()["deselected"])
    means = {record.split: record.measures[0] for record in records(shipped).values()}
    assert {split: measure.value for split, measure in means.items()} == pytest.approx(
        {"grayscale": 0.5, "ladder": 0.5 / 12, "patches": 0.25}
    )
    assert {measure.rule for measure in means.values()} == {"mean"}


def test_a_rule_may_be_about_the_sweep_of_one_suite(shipped: Project) -> None:
    shipped.run("--vlm-report=first", "-k", "test_cell and not resolution")
    shipped.script({"setting": "*", "sample": "q[0-3]", "answer": "A"}, name="newer")
    shipped.write("policy.yaml", MEAN.replace("max:", "unless: {setting: patches}, max:"))
    shipped.run("--vlm-baseline=first", "--vlm-report=out", "-k", "since_baseline", models=("newer",))
    outcomes = {record.split: str(record.outcome) for record in records(shipped).values()}
    assert outcomes == {"grayscale": "FAIL", "ladder": "NOT_APPLICABLE", "patches": "MEASURED"}


def test_a_baseline_that_is_none_ends_the_run_at_once(compared: Project) -> None:
    ends(compared.run("--vlm-baseline=nowhere"), 4, "*nowhere' holds no predictions.sqlite: expected the directory of a run*")
    compared.run("--vlm-baseline=latest").stderr.fnmatch_lines(["*latest: *.vlmrobust holds no run that ended GO*"])


def test_a_baseline_may_be_the_newest_run_the_one_before_it_or_named_as_runs_are_listed(compared: Project) -> None:
    compared.run("--vlm-report=first")
    compared.run("--vlm-baseline=previous").stderr.fnmatch_lines(["*previous: *.vlmrobust holds 1 run that ended GO*"])
    name = compared.the_run.name
    compared.run(f"--vlm-baseline={name}x").stderr.fnmatch_lines([f"*holds no predictions.sqlite*Did you mean '{name}'*"])
    for baseline in ("first", name, "latest", "previous"):
        ends(compared.run(f"--vlm-baseline={baseline}"), 0, "compared with the baseline: 0 answers got worse, *")
    ends(compared.run("--vlm-baseline=latest", "--vlm-update-baseline"), 4, "*that names another run after each one*")


SENDS_ANOTHER = """
import pytest

@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_configure_node(node):
    sent = node.workerinput["vlm_baseline"]
    assert sent.endswith({latest!r}), sent
    node.workerinput["vlm_baseline"] = {other!r}
"""


def test_workers_compare_with_the_run_that_their_controller_found(compared: Project) -> None:
    compared.run()
    other = compared.the_run
    compared.script({"setting": "invert", "answer": "A"}, name="newer")
    compared.run(models=("newer",))
    (latest,) = (run for run in other.parent.iterdir() if run != other)
    compared.write("suite/conftest.py", SENDS_ANOTHER.format(latest=latest.name, other=str(other)))
    compared.run("-n2", "--vlm-baseline=latest", models=("newer",)).stdout.fnmatch_lines(["*8 answers got worse, *"])


def test_a_baseline_of_the_configuration_does_not_disturb_runs_without_models(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_of_the_user(): pass")
    result = pytester.runpytest("-p", "no:cacheprovider", "-n1", "--vlm-baseline=latest")  # there is no run yet
    result.assert_outcomes(passed=1)


def test_a_gate_that_is_not_go_is_no_bar_for_itself_when_it_runs_again(compared: Project) -> None:
    compared.run("--vlm-report=first")
    compared.script({"setting": "invert", "answer": "A"}, name="newer")
    for _ in range(2):
        ends(compared.run("--vlm-baseline=latest", models=("newer",)), 1, "compared with the baseline: 8 answers got worse, *")


def test_a_run_whose_tests_stopped_early_is_no_baseline(compared: Project) -> None:
    compared.run()
    run = compared.the_run
    with Journal(run) as journal:
        journal.append(Record("cell", "model-data-invert", "model", "data", "invert", n_requested=4, n_samples=8))
    result = compared.run(f"--vlm-baseline={run.name}")
    ends(result, 4, "*tests of that run stopped early (adaptive mode)*Make one with --vlm-mode=full*")


def test_a_passing_run_becomes_the_baseline_and_a_failing_one_does_not(
    compared: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--vlm-baseline=bar", "--vlm-update-baseline")
    assert compared.run(*arguments).ret == 0  # the first one
    before = answers(compared.path / "bar", "invert")
    compared.script({"setting": "invert", "answer": "A"}, name="worse")
    assert compared.run(*arguments, models=("worse",)).ret == 1
    assert answers(compared.path / "bar", "invert") == before
    compared.script({"setting": "invert", "sample": "q1", "answer": "(B)"}, name="other")
    assert compared.run(*arguments, models=("other",)).ret == 0
    assert answers(compared.path / "bar", "invert") == ["B", "(B)", *["B"] * 6]


def test_scores_of_a_baseline_that_are_not_those_of_its_answers_are_no_verdict(compared: Project) -> None:
    compared.run("--vlm-report=first")
    compared.script({"setting": "invert", "answer": "A"}, name="worse")
    execute(compared.path / "first", "update answers set value = 0 where cell in (select id from cells where setting = 'invert')")
    result = ends(compared.run("--vlm-baseline=first", "--vlm-report=out", models=("worse",)), 11)
    said = (
        "model-data-invert, sample 'q0': stored 0 (scored, *, 'B'), scored again 1 (scored, *, 'B'), and 7 more answers of this"
    )
    result.stdout.fnmatch_lines(
        [f"*first/predictions.sqlite: {said} cell. The scores of a baseline have to follow from its answers*"]
    )
    outcomes = {str(record.outcome) for record in records(compared).values() if record.setting == "invert"}
    assert outcomes == {"ERROR"}
    for pair in (("first", "out"), ("out", "first")):
        assert main(["compare", *(str(compared.path / name) for name in pair)]) == 4


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("delete from answers where place = 3", "model-data-clean has 7 answers, expected 8: 1 for each of 8 samples"),
        (
            "update answers set value = 'x'",
            "answer 0 of model-data-clean has the score 'x', expected a number from 0 to 1, or null",
        ),
        (
            "update answers set value = 7",
            "answer 0 of model-data-clean has the score 7.0, expected a number from 0 to 1, or null",
        ),
        (
            "insert into samples select dataset, 8, id, content from samples where place = 0",
            "has 'q0' twice, expected each sample",
        ),
    ],
)
def test_a_damaged_baseline_is_no_verdict_and_named(
    compared: Project, capsys: pytest.CaptureFixture[str], statement: str, said: str
) -> None:
    compared.run("--vlm-report=first", "-k", "clean or invert")
    shutil.copytree(compared.path / "first", compared.path / "whole")
    execute(compared.path / "first", statement)
    ends(compared.run("--vlm-baseline=first", "-k", "clean or invert"), 11, f"*first/predictions.sqlite: *{said}*")
    capsys.readouterr()
    assert main(["compare", str(compared.path / "first"), str(compared.path / "whole")]) == 4
    assert said in capsys.readouterr().err


def test_pictures_of_another_seed_are_not_compared(compared: Project, capsys: pytest.CaptureFixture[str]) -> None:
    compared.write("suite/test_suite.py", SUITE.replace('"invert"', '"gaussian_noise:mid"'))
    compared.run("--vlm-report=first")
    seeded = ("--vlm-baseline=first", "--vlm-seed=7", "--vlm-report=out")
    for more in ((), ("-n1",)):
        result = ends(compared.run(*seeded, *more), 4)
        text = result.stdout.str() + result.stderr.str()
        assert "first' was made with --vlm-seed=1234, and this run has --vlm-seed=7: images under 1 setting" in text
        assert "(gaussian_noise:mid) differ there. Run with --vlm-seed=1234, or make a new baseline with --vlm-seed=7" in text
    assert not (compared.path / "out" / "results.json").exists()  # nothing was asked
    alike = compared.run(*seeded, "-k", "clean or flip_v")  # the same pictures, whatever the seed
    alike.assert_outcomes(passed=2, deselected=alike.parseoutcomes()["deselected"])
    assert compared.run("--vlm-baseline=first").ret == 0
    compared.run("--vlm-seed=7", "--vlm-report=other")
    capsys.readouterr()
    assert main(["compare", str(compared.path / "first"), str(compared.path / "other")]) == 4
    assert "was made with --vlm-seed=1234, and this run has --vlm-seed=7" in capsys.readouterr().err


TINT = """
from pytest_vlmrobust import perturbations

@perturbations.corruption(family="tone", levels={{"low": {{"amount": {}}}}}, stochastic=False, version={})
def tint(image, *, amount):
    "Darkens the image."
    return (image * (1 - amount)).astype(image.dtype)
"""


def test_images_of_a_perturbation_that_was_changed_are_not_compared(
    compared: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    compared.write("suite/test_suite.py", SUITE.replace('"invert"', '"tint:low"'))
    for amount, version, code in ((0.9, 1, 10), (0.1, 1, 4), (0.9, 2, 4), (0.9, 1, 0)):
        compared.write("conftest.py", TINT.format(amount, version))
        first = code == 10
        result = compared.run(*(["--vlm-report=first"] if first else ["--vlm-baseline=first"]), subprocess=True)
        ends(
            result, code, *(["*first' was made with other levels, or another version, of tint: its images*"] if code == 4 else [])
        )
    compared.write("conftest.py", TINT.format(0.1, 1))
    compared.run("--vlm-report=other", subprocess=True)
    capsys.readouterr()
    assert main(["compare", str(compared.path / "first"), str(compared.path / "other")]) == 4
    assert "was made with other levels, or another version, of tint" in capsys.readouterr().err


def test_a_run_does_not_replace_its_own_baseline(compared: Project) -> None:
    compared.run("--vlm-report=first")
    before = (compared.path / "first" / "predictions.sqlite").read_bytes()
    (compared.path / "link").symlink_to("first")
    (compared.path / "file").mkdir()
    (compared.path / "file" / "predictions.sqlite").symlink_to("../first/predictions.sqlite")
    for baseline, report in (
        ("first", "first"),
        ("first", "link"),
        ("link", "first"),
        ("file", "first"),
        ("first", "a/../first"),
    ):
        result = compared.run(f"--vlm-baseline={baseline}", f"--vlm-report={report}")
        ends(
            result,
            4,
            f"*--vlm-report '{report}' would replace --vlm-baseline '{baseline}': a gate must not move its own bar. Name*",
        )
    assert (compared.path / "first" / "predictions.sqlite").read_bytes() == before


def answers(directory: Path, setting: str) -> list[str]:
    with Evidence.open(directory, read_only=True) as evidence:
        (cell,) = [planned for planned in evidence.cells() if str(planned.setting) == setting]
        return [answer.prediction.text for answer in evidence.get_cell(cell).answers]


def test_the_bar_is_not_moved_in_continuous_integration(compared: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = compared.run("--vlm-baseline=bar", "--vlm-update-baseline")
    ends(result, 4, "*refused where the environment variable CI is set: a gate must not move its own bar*")
    monkeypatch.delenv("CI")
    ends(compared.run("--vlm-update-baseline"), 4, "*--vlm-update-baseline needs --vlm-baseline DIR*")


def test_letters_are_not_compared_with_text(compared: Project, capsys: pytest.CaptureFixture[str]) -> None:
    compared.run("--vlm-report=first")
    compared.write("model.yaml", json.dumps({"rules": [{"letter": "B"}]}))
    result = compared.run("--vlm-baseline=first", "--vlm-report=out")
    assert result.ret not in (0, 1)
    assert result.parseoutcomes().get("errors", 0) >= 4
    result.stdout.fnmatch_lines(
        ["*the baseline * cannot be compared on data: choices were answered there by text, and here by letters*"]
    )
    assert compared.results("out")["decision"] != "GO"
    assert main(["compare", "first", "out"]) == 4
    assert "--vlm-answer=text is what every model can do" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), WORKERS_IF_SLOW])
def test_inferences_of_tests_that_end_in_errors_are_counted(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project = make_project(pytester, arguments)
    project.run("--vlm-report=first")
    write_questions(project.path, "B" * (SAMPLES + 1))
    result = ends(project.run("--vlm-baseline=first", "--vlm-report=out", "--vlm-store=another"), 11)
    facts = project.results("out")
    (spent,) = facts["spending"]
    assert spent["answers"] >= 6 * (SAMPLES + 1)
    result.stdout.fnmatch_lines([f"{spent['answers']} inferences; *"])
    failed = [record for record in facts["records"] if record["test"] == "cell"]
    assert {record["outcome"] for record in failed} == {"ERROR"}
    assert sum(record.get("n_inferred", 0) for record in facts["records"]) == spent["answers"]
