"""Whatever ends pytest badly, no evidence says GO, no baseline moves, and the reason is told everywhere alike."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.cli import main

from .conftest import ALONE, SUITE, WORKERS_IF_SLOW, Project, decision_cases, ends, make_project

OWN_ASSERTION = SUITE.replace(
    "    vlm_cell.check()", "    vlm_cell.check()\n    assert vlm_cell.record.setting != 'invert', 'my own'"
)
OWN_ERROR = SUITE.replace(
    "    vlm_cell.check()",
    "    vlm_cell.check()\n    from pytest_vlmrobust.core.errors import UsageError\n    raise UsageError('my own')",
)
UNDECIDED = SUITE.replace(
    "    vlm_cell.check()", "    assert vlm_cell.record.setting != 'invert', 'my own'\n    vlm_cell.check()"
)
TEARDOWN = """
import pytest

@pytest.fixture
def late(request):
    yield
    if "invert" in request.node.name:
        raise RuntimeError("my own")
""" + SUITE.replace("def test_cell(vlm_cell)", "def test_cell(vlm_cell, late)")
OTHER_SETUP = """
import pytest

@pytest.fixture
def broken(vlm_cell, request):
    if "invert" in request.node.name:
        raise RuntimeError("my own")
""" + SUITE.replace("def test_cell(vlm_cell)", "def test_cell(broken, vlm_cell)")
STRICT = SUITE.replace(
    "@pytest.mark.vlm_settings", "@pytest.mark.xfail(strict=True, reason='my own')\n@pytest.mark.vlm_settings", 1
)
IN_THE_GATE = {
    "its own assertion": OWN_ASSERTION,
    "an error of ours that is no verdict": OWN_ERROR,
    "teardown": TEARDOWN,
    "another fixture": OTHER_SETUP,
    "strict xfail": STRICT,
}
PLAIN = "def test_zzz():\n    {}\n"
LIMITS = (
    ("-x",),
    pytest.param(("-n2", "-x"), marks=pytest.mark.slow),
    pytest.param(("-n2", "--maxfail=2"), marks=pytest.mark.slow),
    ("--sw",),
    pytest.param(("-n2", "--sw"), marks=pytest.mark.slow),
)


def said_everywhere(project: Project) -> set[str]:
    """Returns every decision that the run, and what is made of it later, gives."""
    out = project.path / "out"
    run = project.the_run
    main(["report", str(run), "--out", str(project.path / "later")])
    main(["junit", str(run), "--out", str(project.path / "later.xml")])
    decisions = {
        json.loads((out / "results.json").read_text())["decision"],
        json.loads((run / "manifest.json").read_text())["decision"],
    }
    decisions |= {project.results("later")["decision"]}
    for folder in (out, project.path / "later"):
        decisions.add((folder / "summary.md").read_text().splitlines()[0].removeprefix("# "))
    for file in ("junit.xml", "out/junit.xml", "later.xml", "later/junit.xml"):
        suite = ElementTree.parse(project.path / file).getroot()[0]
        decisions |= {
            str(entry.get("value")) for entry in suite.findall("properties/property") if entry.get("name") == "vlm.verdict"
        }
        decisions |= set(decision_cases(project.path / file).values())
    return decisions


def run(project: Project, *more: str, subprocess: bool = False) -> pytest.RunResult:
    given = ("--vlm-report=out", "--junitxml=junit.xml", "--vlm-baseline=base", "--vlm-update-baseline", *more)
    return project.run(*given, subprocess=subprocess)


@pytest.fixture(params=[ALONE, WORKERS_IF_SLOW])
def both(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    """The gate alone and with workers."""
    return make_project(pytester, request.param)


def refused(project: Project, result: pytest.RunResult, code: int, reason: str) -> None:
    assert result.ret == code
    assert said_everywhere(project) == {"INCOMPLETE"}
    assert not (project.path / "base").exists()
    if code in (1, 2, 11):  # else pytest prints no summary
        result.stdout.fnmatch_lines([f"*{reason}*", "INCOMPLETE*"])
    assert "\nGO " not in result.stdout.str()
    assert reason in (project.path / "later" / "summary.md").read_text()
    assert reason in (project.path / "later" / "report.html").read_text()


def test_without_any_of_this_the_run_is_go_and_moves_the_baseline(both: Project) -> None:
    both.write("suite/test_zzz.py", PLAIN.format("pass"))
    assert run(both).ret == 0
    assert said_everywhere(both) == {"GO"}
    assert (both.path / "base" / "predictions.sqlite").is_file()


@pytest.mark.parametrize("suite", IN_THE_GATE.values(), ids=IN_THE_GATE)
def test_a_gated_test_that_fails_beside_its_verdict(project: Project, suite: str) -> None:
    project.write("suite/test_suite.py", suite)
    refused(project, run(project), 1, "my own")


@pytest.mark.parametrize(
    "suite", [pytest.param(OWN_ASSERTION, id="call"), pytest.param(TEARDOWN, id="teardown", marks=pytest.mark.slow)]
)
def test_a_gated_test_that_fails_beside_its_verdict_on_a_worker(pytester: pytest.Pytester, suite: str) -> None:
    project = make_project(pytester, ("-n2",))
    project.write("suite/test_suite.py", suite)
    refused(project, run(project), 1, "my own")


def test_its_case_in_junit_has_the_verdict_and_the_failure(project: Project) -> None:
    project.write("suite/test_suite.py", OWN_ASSERTION)
    run(project)
    for file in ("junit.xml", "out/junit.xml"):
        cases = [case for case in ElementTree.parse(project.path / file).iter("testcase") if "invert" in str(case.get("name"))]
        (case,) = cases
        assert {"vlm.verdict": "PASS"}.items() <= {
            entry.get("name"): entry.get("value") for entry in case.iter("property")
        }.items()
        assert "my own" in str([failure.get("message") for failure in case.iter("failure")])


def test_a_failure_beside_an_undecided_verdict_is_not_undecided(project: Project) -> None:
    project.write("suite/test_suite.py", UNDECIDED)
    project.write("policy.yaml", (project.path / "policy.yaml").read_text().replace("point", "interval"))
    refused(project, run(project), 1, "my own")


def test_a_breach_stays_no_go(project: Project) -> None:
    project.write("suite/test_suite.py", TEARDOWN)
    project.script({"setting": "flip_v", "answer": "A"})
    assert run(project).ret == 1
    assert said_everywhere(project) == {"NO-GO"}


def test_a_plain_test_that_fails(both: Project) -> None:
    both.write("suite/test_zzz.py", PLAIN.format("assert 0, 'my own'"))
    refused(both, run(both), 1, "my own")


@pytest.mark.parametrize(
    ("statement", "code", "reason"),
    [
        ("raise KeyboardInterrupt", 2, "pytest was interrupted (KeyboardInterrupt)"),
        pytest.param("import pytest; pytest.exit('enough')", 2, "pytest was interrupted (enough)", marks=pytest.mark.slow),
        pytest.param(
            "import pytest; pytest.exit('enough', returncode=7)", 7, "pytest was interrupted (enough)", marks=pytest.mark.slow
        ),
        ("import pytest; pytest.exit('enough', returncode=0)", 11, "pytest was interrupted (enough)"),
    ],
    ids=["keyboard", "exit", "exit with a code", "exit with 0"],
)
def test_an_interruption_after_the_last_gated_test(project: Project, statement: str, code: int, reason: str) -> None:
    project.write("suite/test_zzz.py", PLAIN.format(statement))
    refused(project, run(project, subprocess=True), code, reason)  # in this process, Ctrl-C would end these tests too
    results = project.results("later")
    assert (results["stopped"], results["missing"], results["decisions"]) == (reason, 0, {"model": "INCOMPLETE"})


def test_an_internal_error_after_the_last_gated_test(project: Project) -> None:
    project.write(
        "conftest.py",
        "def pytest_runtest_logfinish(nodeid):\n    if 'zzz' in nodeid:\n        raise RuntimeError('a plugin broke')\n",
    )
    project.write("suite/test_zzz.py", PLAIN.format("pass"))
    refused(project, run(project), 3, "pytest met an internal error (a plugin broke)")


def test_a_file_that_cannot_be_collected(both: Project) -> None:
    both.write("suite/test_broken.py", "import no_such_module_at_all\n" + SUITE)
    refused(both, run(both, "--continue-on-collection-errors"), 1, "cannot be collected: ")
    names = [case.get("name") for case in ElementTree.parse(both.path / "later.xml").iter("testcase")]
    assert "suite.test_broken" in names


def test_a_run_that_ends_in_its_collection_leaves_nothing(project: Project) -> None:
    project.write("suite/test_broken.py", "import no_such_module_at_all\n")
    result = ends(run(project), 2)
    assert "INCOMPLETE" not in result.stdout.str()
    assert not list(Path(project.path / ".vlmrobust").glob("runs/*"))


@pytest.mark.slow
@pytest.mark.slow
def test_xdist_goes_on_without_a_file_that_cannot_be_collected(pytester: pytest.Pytester) -> None:
    project = make_project(pytester, ("-n2",))
    project.write("suite/test_broken.py", "import no_such_module_at_all\n")
    refused(project, run(project), 1, "cannot be collected: ")


@pytest.mark.parametrize("arguments", LIMITS, ids=" ".join)
def test_a_limit_of_failures_keeps_the_code_of_the_gate(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project = make_project(pytester, arguments)
    project.script(*({"setting": name, "answer": "A"} for name in ("grayscale", "flip_v", "invert")))
    ends(project.run(), 1, "NO-GO*")


@pytest.mark.parametrize("arguments", LIMITS, ids=" ".join)
def test_a_limit_of_errors_is_incomplete(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project = make_project(pytester, arguments)
    project.script(*({"setting": name, "error": "down"} for name in ("clean", "grayscale", "flip_v", "invert")))
    ends(project.run(), 11, "INCOMPLETE*")


@pytest.mark.parametrize("arguments", [ALONE, WORKERS_IF_SLOW])
def test_a_limit_that_a_plain_test_meets_keeps_the_code_of_pytest(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    project = make_project(pytester, arguments)
    project.write("suite/test_aaa.py", PLAIN.format("assert 0"))
    result = ends(project.run("-x"), 1)
    assert "\nGO " not in result.stdout.str()


@pytest.mark.parametrize("option", ["-x", "--sw"])
def test_the_keyboard_is_no_limit_of_failures(project: Project, option: str) -> None:
    project.write("suite/test_zzz.py", PLAIN.format("raise KeyboardInterrupt"))
    refused(project, run(project, option, subprocess=True), 2, "pytest was interrupted (KeyboardInterrupt)")


NOTHING_DECIDED = "vlm: nothing was asked and nothing decided: pytest only lists tests, or what they set up"


@pytest.mark.parametrize(
    ("option", "code", "given_in"),
    [
        ("--collect-only", 0, "ini"),
        ("--co", 0, "option"),
        ("--setup-plan", 5, "option"),
        ("--setup-plan", 5, "ini"),
        ("--setup-only", 5, "PYTEST_ADDOPTS"),
    ],
)
def test_pytest_that_runs_no_test_says_that_nothing_was_decided(
    project: Project, option: str, code: int, given_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given_in == "PYTEST_ADDOPTS":
        monkeypatch.setenv("PYTEST_ADDOPTS", option)
    elif given_in == "ini":
        project.write("pytest.ini", f"[pytest]\naddopts = {option}\nvlm = scripted:model.yaml\n")
    models = () if given_in == "ini" else ("model",)
    result = ends(project.run(*([option] if given_in == "option" else []), models=models), code)
    assert result.outlines.count(NOTHING_DECIDED) == 1
    assert "INCOMPLETE" not in result.stdout.str()
    assert not (project.path / ".vlmrobust" / "runs").exists()


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
def test_what_plain_tests_set_up_is_shown_as_ever_beside_a_model_in_an_ini_file(project: Project, option: str) -> None:
    project.write("pytest.ini", "[pytest]\nvlm = scripted:model.yaml\n")
    project.write("suite/test_suite.py", PLAIN.format("assert 1"))
    result = ends(project.run(option, models=()), 0)
    assert NOTHING_DECIDED not in result.outlines


@pytest.mark.parametrize("option", ["--version", "--fixtures", "--fixtures-per-test", "--cache-show", "--markers"])
def test_pytest_that_only_shows_something_says_nothing_of_the_gate(project: Project, option: str) -> None:
    result = ends(project.run(option), 0)
    text = result.stdout.str()
    assert "INCONCLUSIVE" not in text
    assert not [line for line in result.outlines if line.startswith("vlm:")]
    assert "nothing was measured" not in text


def test_reports_are_written_once_the_model_is_freed(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        from pytest_vlmrobust import reporting
        from pytest_vlmrobust.backends import scripted

        events = []
        infer, close, write = scripted.ScriptedBackend.infer, scripted.ScriptedBackend.close, reporting.write_report
        scripted.ScriptedBackend.infer = lambda self, requests: events.append("asked") or infer(self, requests)
        scripted.ScriptedBackend.close = lambda self: events.append("freed") or close(self)
        reporting.write_report = lambda *about: events.append("written") or write(*about)

        def pytest_unconfigure(config):
            print("in this order:", *dict.fromkeys(events))
        """.replace("\n        ", "\n"),
    )
    project.run("--vlm-report=out", subprocess=True).stdout.fnmatch_lines(["*in this order: asked freed written"])


LEAVES = """
import atexit
import os
import threading

atexit.register(lambda: os._exit(0))
{}
"""


@pytest.mark.parametrize(
    ("answer", "code", "more"),
    [
        pytest.param("A", 1, "", marks=pytest.mark.slow),
        pytest.param("A", 1, "from os import _exit; atexit.register(lambda: _exit(0))", marks=pytest.mark.slow),
        ("A", 1, "threading._register_atexit(os._exit, 0)"),
        pytest.param("B", 0, "", marks=pytest.mark.slow),
        ("?", 10, "atexit.register(os._exit, 0)"),
    ],
)
def test_a_module_that_leaves_by_exit_0_at_the_end_changes_no_exit_code(
    project: Project, answer: str, code: int, more: str
) -> None:
    if answer == "?":
        policy = project.path / "policy.yaml"
        policy.write_text(policy.read_text().replace("judge: point", "judge: interval"))  # eight questions decide nothing
    project.script({"setting": "invert", "answer": answer if answer != "?" else "B"})
    project.write("suite/leaves.py", LEAVES.format(more))
    suite = project.path / "suite" / "test_suite.py"
    suite.write_text(f"import leaves\n{suite.read_text()}")
    result = ends(project.run(subprocess=True), code)
    text = result.stdout.str() + result.stderr.str()
    assert (f"vlm: something called os._exit(0) after pytest ended with exit code {code}" in text) == (code != 0)


def test_a_breach_is_1_without_the_terminal_of_pytest_too(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("-p", "no:terminal", subprocess=True).ret == 1
