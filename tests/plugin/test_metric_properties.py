"""The shipped property checks in a user's gate: metrics of their own, good and wrong, in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.metrics import Metric
from pytest_vlmrobust.shipped import shipped
from pytest_vlmrobust.testing import CHECKS, PROPERTIES, Property, properties
from tests.forked import run_forked

from .conftest import ALONE, WORKERS_IF_SLOW, Project, ends, make_project
from .test_gate import TESTS

GOOD = """
import numpy as np

from pytest_vlmrobust.metrics import Needs, metric


def known(scores):
    return scores.size > 0 and not np.isnan(scores).any()


@metric(better="higher", bounds=(0.0, 1.0), perfect=1.0)
def good(perturbed):
    return float(perturbed.mean()) if known(perturbed) else float("nan")


@metric(better="lower")
def upside_down(perturbed):
    return float(perturbed.mean()) if known(perturbed) else float("nan")
"""
WRONG_ONES = """

@metric()
def of_the_first(perturbed):
    return float(perturbed[0]) if known(perturbed) else float("nan")


@metric(bounds=(0.0, 0.5))
def out_of_bounds(perturbed):
    return float(perturbed.mean()) if known(perturbed) else float("nan")


@metric()
def blind_to_gaps(perturbed):
    return float(np.nansum(perturbed)) / len(perturbed) if len(perturbed) else float("nan")


@metric()
def of_numpy(perturbed):
    return perturbed.mean() if known(perturbed) else float("nan")


@metric(interval=lambda table, setting, confidence: (0.4 * confidence, 0.5))
def beside_its_interval(perturbed):
    return float(perturbed.mean()) if known(perturbed) else float("nan")
"""
WRONG = {
    "of_the_first": "test_metric[of_the_first-permutation]",
    "out_of_bounds": "test_metric[out_of_bounds-bounds]",
    "blind_to_gaps": "test_metric[blind_to_gaps-missing]",
    "upside_down": "test_metric[upside_down-monotone]",
    "of_numpy": "test_metric[of_numpy-float]",
    "beside_its_interval": "test_interval[beside_its_interval-ordered]",
}
NO_ORACLE = "no formula in plain Python to compare with: that is for the metrics of this package"


@pytest.fixture
def shop(project: Project) -> Project:
    """A gate with the shipped property checks and metrics of the user's own."""
    return furnished(project)


def furnished(project: Project) -> Project:
    project.write("conftest.py", GOOD)
    project.write(
        "suite/test_metric_properties.py", (shipped("suites") / "test_metric_properties.py").read_text(encoding="utf-8")
    )
    return project


def test_wrong_metrics_of_ones_own_are_found_by_name(shop: Project) -> None:
    shop.write("conftest.py", GOOD + WRONG_ONES)
    chosen = " or ".join(["good", *WRONG])
    arguments = ("suite/test_metric_properties.py", "-k", chosen, "-rfs", "--tb=short", "-p", "no:randomly")
    result = ends(run_forked(shop.pytester, *arguments), 1)
    printed = result.stdout.str()
    failed = {line.split("::")[1].partition(" ")[0] for line in result.outlines if line.startswith("FAILED ")}
    assert failed >= set(WRONG.values())
    assert {name.partition("[")[2].partition("-")[0] for name in failed} == set(WRONG)
    result.stdout.fnmatch_lines_random(
        [
            "*metric 'of_the_first' depends on the order of the samples: 0.0, but 1.0 for perturbed=[[]1.0, 0.0[]]",
            "*metric 'out_of_bounds' returned *, outside its bounds 0.0 to 0.5",
            "*metric 'blind_to_gaps' returned a number although a score in perturbed is missing (NaN)",
            "*metric 'upside_down' moved from 0.0 to 1.0 when one score in perturbed rose: its record says better='lower'*",
            "*metric 'of_numpy' returned * of type float64: expected a built-in float",
            "*metric 'beside_its_interval' has the interval * which does not hold its value *",
            "*called with perturbed=[[]0.0, 1.0[]]",
            "*metric 'of_numpy' raised UsageError: *: expected a built-in float. Wrap what it returns in float()",
            f"SKIPPED * {NO_ORACLE}",
        ]
    )
    assert "hypothesis/core.py" not in printed  # what failed is the metric, not the machinery


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_a_failed_check_makes_the_run_fail_and_no_evidence_says_go(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project = furnished(make_project(pytester, arguments))
    result = ends(project.run("-k", "test_cell or test_sweep or upside_down-monotone or good-float", subprocess=True), 1)
    result.assert_outcomes(passed=TESTS + 1, failed=1)
    failed = "FAILED  other tests failed, so the run fails whatever the gate decides: *upside_down-monotone[]]"
    reason = "ERROR suite/test_metric_properties.py::*upside_down-monotone[]]: a non-gate test failed: *moved from*"
    result.stdout.fnmatch_lines([reason, "INCOMPLETE  *", failed])
    assert "tests ran: the decision is about these" not in result.stdout.str()
    run = project.the_run
    assert json.loads((run / "manifest.json").read_text())["selected"] == TESTS
    assert main(["report", str(run)]) == EXIT_CODES[Decision.INCOMPLETE]
    results = json.loads((run / "results.json").read_text())
    assert (results["decision"], results["missing"]) == ("INCOMPLETE", 0)
    assert [record["outcome"] for record in results["records"] if record["test"] == "check"] == ["ERROR"]


def test_checks_that_hold_leave_the_gate_as_it_is(shop: Project) -> None:
    result = ends(shop.run("-k", "test_cell or test_sweep or good", subprocess=True), 0)
    said = "metrics: 10 checks of this installation passed, 10 passed before or make no claim"
    result.stdout.fnmatch_lines(["suite/test_metric_properties.py   *%[]]", said, "GO  *"])
    assert "FAILED" not in result.stdout.str()


def test_property_checks_alone_need_no_model_and_gate_nothing(shop: Project) -> None:
    assert run_forked(shop.pytester, "suite/test_metric_properties.py", "-k", "good-empty").ret == 0
    ends(shop.run("-k", "good-empty", subprocess=True), 10, "*no gated test ran: nothing was measured*")


def test_the_thorough_profile_is_known_to_hypothesis(shop: Project) -> None:
    given = ("suite/test_metric_properties.py", "-k", "good-empty", "--hypothesis-profile=vlm-thorough", "-v", "-n1")
    ends(run_forked(shop.pytester, *given), 0, "*hypothesis profile 'vlm-thorough'*max_examples=300*")


def test_a_misspelt_profile_in_the_environment_is_named(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMROBUST_PROFILE", "vlm-thorugh")
    result = run_forked(shop.pytester, "suite/test_metric_properties.py", "-k", "good-empty")
    ends(result, 1, "*VLMROBUST_PROFILE: unknown profile 'vlm-thorugh'. Did you mean 'vlm-thorough'?*")


# Metrics of the package: checked once on each installation.


SUITE = "suite/test_metric_properties.py"
IDS = [f"{SUITE}::{test}[accuracy-all]" for test in ("test_metric", "test_interval", "test_verdict")]
REMEMBERED = "SKIPPED * remembered: passed on 20??-??-?? with pytest-vlmrobust *, numpy *, scipy *, Python *checks.jsonl says"


@pytest.fixture
def checks(pytester: pytest.Pytester) -> pytest.Pytester:
    """The shipped property checks without a model."""
    file = pytester.path / "suite" / "test_metric_properties.py"
    file.parent.mkdir()
    file.write_text((shipped("suites") / "test_metric_properties.py").read_text(encoding="utf-8"), encoding="utf-8")
    return pytester


def run(checks: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return checks.runpytest(*IDS, "-rs", "-p", "no:randomly", *arguments)


def passes(directory: Path) -> list[str]:
    file = directory / "checks.jsonl"
    return sorted(json.loads(line)["test"] for line in file.read_text().split("\n") if line) if file.is_file() else []


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_what_passed_is_remembered_in_the_store_and_said(checks: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    run(checks, *arguments).assert_outcomes(passed=3)
    assert passes(checks.path / ".vlmrobust") == ["test_interval", "test_metric", "test_verdict"]
    again = run(checks, *arguments)
    again.assert_outcomes(skipped=3)
    again.stdout.fnmatch_lines([REMEMBERED])
    run(checks, "--vlm-store=another").assert_outcomes(passed=3)
    assert len(passes(checks.path / "another")) == 3


def test_other_code_is_checked_again(checks: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    run(checks).assert_outcomes(passed=3)
    properties.installation.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(properties, "_code_digest", lambda: "another digest")
        run(checks).assert_outcomes(passed=3)
        run(checks).assert_outcomes(skipped=3)
    properties.installation.cache_clear()
    run(checks).assert_outcomes(skipped=3)


def test_a_metric_of_the_package_that_fails_is_not_remembered(checks: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(record: Metric, examples: int) -> None:
        raise AssertionError(f"metric {record.name!r} differs on {examples} examples")

    with monkeypatch.context() as patched:
        for known in (PROPERTIES, CHECKS):
            patched.setitem(known, "empty", Property("", hold))
        for others in ("passed", "skipped"):
            result = run(checks)
            assert result.parseoutcomes() == {others: 2, "failed": 1}
            result.stdout.fnmatch_lines(["*metric 'accuracy' differs on 3 examples*"])
    assert passes(checks.path / ".vlmrobust") == ["test_interval", "test_verdict"]
    run(checks).assert_outcomes(passed=1, skipped=2)


def test_where_the_store_cannot_be_written_checks_run_each_time(checks: pytest.Pytester) -> None:
    (checks.path / "file").write_text("no directory", encoding="utf-8")
    for _ in range(2):
        run(checks, "--vlm-store=file").assert_outcomes(passed=3)


@pytest.mark.slow
def test_metrics_of_ones_own_are_checked_in_full_each_time(shop: Project) -> None:
    """One that replaces a metric of the package is a metric of one's own."""
    mine = "\n\n@metric(better='higher', perfect=1.0, replace=True)\ndef accuracy(perturbed):\n    return good(perturbed)\n"
    shop.write("conftest.py", GOOD + mine)
    tests = [f"{SUITE}::test_metric[{about}]" for about in ("good-float", "accuracy-float", "accuracy_drop-all")]
    run_forked(shop.pytester, *tests).assert_outcomes(passed=3)
    run_forked(shop.pytester, *tests).assert_outcomes(passed=2, skipped=1)


def test_thorough_checks_are_made_one_by_one_and_remembered_by_no_one(checks: pytest.Pytester) -> None:
    run(checks).assert_outcomes(passed=3)
    test = f"{SUITE}::test_metric[accuracy-float]"
    for _ in range(2):
        checks.runpytest(test, "--hypothesis-profile=vlm-thorough").assert_outcomes(passed=1)
    assert checks.runpytest(test).ret == pytest.ExitCode.USAGE_ERROR
    assert len(passes(checks.path / ".vlmrobust")) == 3
