"""The gate as a user runs it: exit codes, test ids, JUnit, resuming, workers."""

from __future__ import annotations

import gc
import json
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.cli import main
from tests.forked import run_forked
from tests.small_gate import policy, write_questions

from .conftest import ALONE, POLICY, SAMPLES, WORKERS, Project, count_frozen, decision_cases, ends, make_project

CELLS = 6
TESTS = CELLS + 2


@pytest.fixture(params=[ALONE, WORKERS])
def gate(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    """A gate with workers too, in every run of these tests."""
    return make_project(pytester, request.param)


def properties(project: Project, name: str) -> dict[str, str]:
    case = next(case for case in ElementTree.parse(project.path / "junit.xml").iter("testcase") if name in str(case.get("name")))
    return {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}


def test_a_good_model_is_go_in_a_report_and_repeats_without_inference(gate: Project) -> None:
    first = ends(gate.run("--vlm-report=out"), 0, f"*{CELLS * SAMPLES} inferences*", "*GO  *verdicts passed*")
    first.assert_outcomes(passed=TESTS)
    assert gate.stored == CELLS * SAMPLES, "each answer is inferred once over all workers"
    out = gate.path / "out"
    results = json.loads((out / "results.json").read_text())
    assert results["decision"] == "GO"
    assert len(results["records"]) == TESTS
    assert (out / "summary.md").read_text().startswith("# GO")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["models"]["model"]["fingerprint"]["backend"] == "scripted"
    assert len(manifest["datasets"]["data"]) == 64
    ends(gate.run(), 0, "0 inferences; * answers were cached")


def test_a_broken_bound_is_no_go_names_the_cell_and_has_the_documented_properties(gate: Project) -> None:
    gate.script({"setting": "invert", "answer": "A"})
    result = gate.run("--junitxml=junit.xml", "--vlm-report=out")
    ends(result, 1, "*FAIL model-data-invert: accuracy_drop 100.0 pp > 20 pp (rule drop, policy.yaml:5)*", "*NO-GO*")
    assert "suites" not in result.stdout.str()
    written = properties(gate, "invert")
    assert written["vlm.cell"] == "model-data-invert"
    assert written["vlm.verdict"] == "FAIL"
    assert written["vlm.metric.accuracy_drop"] == "1"
    assert written["vlm.metric.accuracy_drop.threshold"] == "0.2"
    lost = 0.05 ** (1 / SAMPLES)  # where so many are lost, one draw in twenty loses all; the rest may be won
    assert float(written["vlm.metric.accuracy_drop.low"]) == pytest.approx(lost - (1 - lost), abs=1e-5)
    assert written["vlm.n"] == str(SAMPLES)
    assert len(written["vlm.policy_sha256"]) == 64
    root = ElementTree.parse(gate.path / "junit.xml").getroot()
    suite = {str(p.get("name")): p.get("value") for p in root[0].findall("properties/property")}
    assert suite["vlm.verdict"] == "NO-GO"
    failure = next(case.find("failure") for case in root.iter("testcase") if "invert" in str(case.get("name")))
    assert failure is not None
    assert "accuracy_drop 100.0 pp > 20 pp" in str(failure.get("message")).splitlines()[0]
    counts = {name: root[0].get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": str(TESTS + 1), "failures": "3", "errors": "0", "skipped": "0"}
    decisions = [
        ElementTree.parse(gate.path / file).find(".//testcase[@name='decision']") for file in ("junit.xml", "out/junit.xml")
    ]
    assert len({ElementTree.tostring(case) for case in decisions if case is not None}) == 1
    assert decision_cases(gate.path / "junit.xml") == decision_cases(gate.path / "out" / "junit.xml") == {"model": "NO-GO"}


def test_junit_says_that_nothing_was_gated(project: Project) -> None:
    project.write("suite/test_suite.py", "def test_plain():\n    pass\n")
    assert project.run("--junitxml=junit.xml").ret == 10
    assert decision_cases(project.path / "junit.xml") == {"model": "INCONCLUSIVE"}


def test_a_strict_reader_of_junit_gets_no_properties_of_test_cases(any_project: Project) -> None:
    any_project.script({"setting": "invert", "answer": "A"})
    assert any_project.run("--junitxml=junit.xml", "--vlm-report=out", "--vlm-junit-plain").ret == 1
    for file in ("junit.xml", "out/junit.xml"):
        root = ElementTree.parse(any_project.path / file).getroot()
        assert root.find(".//testcase") is not None
        assert root.find(".//testcase/properties") is None
        assert root.find("testsuite/properties/property") is not None


def test_what_the_page_counts_is_kept_for_the_report(project: Project) -> None:
    from pytest_vlmrobust.reporting.files import read_run

    project.write("policy.yaml", POLICY.replace("rules:", "coverage: {tests: partial, samples: partial, rules: partial}\nrules:"))
    result = project.run()
    result.stdout.fnmatch_lines(["warning the policy of model is a smoke test*"])
    run = project.the_run
    assert any("is a smoke test" in warning for warning in read_run(run).facts.warnings)


def test_github_is_told_in_its_own_words(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GITHUB_ACTIONS": "true", "GITHUB_SHA": "0123abcd", "GITHUB_RUN_ID": "77"}.items():
        monkeypatch.setenv(name, value)
    project.script({"setting": "invert", "answer": "A"})
    result = project.run("--vlm-report=out")
    result.stdout.fnmatch_lines(
        [
            "NO-GO  *",
            "::error title=NO-GO::2 verdicts broke a bound",
            "::error file=policy.yaml,line=5,title=FAIL model-data-invert::accuracy_drop 100.0 pp > 20 pp (rule drop, *",
        ]
    )
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())
    assert (manifest["commit"], manifest["ci"]) == ("0123abcd", {"GITHUB_RUN_ID": "77"})
    assert "Made from commit `0123abcd`, GITHUB_RUN_ID `77`." in (project.path / "out" / "summary.md").read_text()
    assert "0123abcd" in (project.path / "out" / "report.html").read_text()


def test_the_same_records_in_the_same_words_with_and_without_workers(pytester: pytest.Pytester) -> None:
    seen: list[list[str]] = []
    for arguments in ((), ("-n0",), ("-n2",)):
        project = make_project(pytester, arguments)
        project.script({"sample": "q3", "answer": "A"})
        project.run("--vlm-report=out", f"--vlm-store=store{len(seen)}")
        records = project.results("out")["records"]
        volatile = {"seconds", "n_inferred", "n_recalled", "nodeid"}
        seen.append(sorted((json.dumps({k: v for k, v in r.items() if k not in volatile}, sort_keys=True)) for r in records))
    assert seen[0] == seen[1] == seen[2]


def test_ids_are_those_of_the_contract(project: Project) -> None:
    result = project.run("--collect-only", "-q")
    lines = [line for line in result.outlines if "::" in line]
    assert lines[0] == "suite/test_suite.py::test_cell[model-data-clean]"
    assert "suite/test_suite.py::test_cell[model-data-solarize:low]" in lines
    assert lines[-2:] == [
        "suite/test_suite.py::test_sweep[model-data-worst_case_drop]",
        "suite/test_suite.py::test_sweep[model-data-visual_gain]",
    ]


def test_a_summary_metric_alone_computes_what_it_needs(any_project: Project) -> None:
    any_project.script({"setting": "invert", "sample": "q[01]", "answer": "A"})
    ends(any_project.run("-k", "worst_case_drop"), 1, "*worst_case_drop 25.0 pp > 20 pp*")


def test_offline_without_answers_is_incomplete_and_says_what_to_do(any_project: Project) -> None:
    assert any_project.run("-k", "clean").ret == 10  # a part of the tests
    result = any_project.run("--vlm-offline")
    ends(result, 11, "*8 of 8 answers are not in the store*Run once without --vlm-offline*", "*INCOMPLETE*")


def test_a_failed_inference_is_an_error_of_the_gate_and_not_of_the_model(any_project: Project) -> None:
    any_project.script({"setting": "invert", "sample": "q1", "error": "the endpoint is down"})
    ends(any_project.run(), 11, "*error_rate*", "*INCOMPLETE*")


def test_a_broken_bound_outranks_an_error(project: Project) -> None:
    project.script({"setting": "invert", "sample": "q1", "error": "down"}, {"setting": "flip_v", "answer": "A"})
    assert project.run().ret == 1


def test_unreadable_answers_are_counted_apart(project: Project) -> None:
    project.script({"setting": "invert", "answer": "Hm."})
    ends(
        project.run("-v"),
        1,
        "*unparsed_rate *100.0 % *n=8  FAIL <= 5 %",
        "FAIL model-data: unparsed_rate 20.0 %*most often no rule found an answer in the text ('none'), 8 of them*",
    )


NOT_FOUND = "no rule found an answer in the text ('none')"


@pytest.mark.parametrize(
    ("answer", "why", "advice"),
    [
        ("Hm.", NOT_FOUND, "use a prompt that asks for the letter alone, or --vlm-answer=letters"),
        ("<mull>It has ears.</mull>", NOT_FOUND, "a thinking mark that is not known"),
        ("<think>It may be A", "'unfinished_thinking'", "max_new_tokens"),
        ("A or B", "'ambiguous'", "names several answers"),
    ],
)
def test_a_test_that_fails_for_unread_answers_says_why_and_what_to_do(
    project: Project, answer: str, why: str, advice: str
) -> None:
    project.script({"setting": "invert", "answer": answer})
    result = ends(project.run("-v"), 1)
    said = " ".join(result.stdout.str().split())
    assert f"unread {why}, 8 of 8, such as" in said
    assert answer in said
    assert advice in said


def test_texts_that_stop_in_a_sentence_need_more_tokens(project: Project) -> None:
    project.script({"setting": "invert", "answer": "The ears are long and the tail is " * 8})
    assert "The texts stop in the middle of a sentence. Raise max_new_tokens" in " ".join(project.run("-v").stdout.str().split())


LENIENT = policy(90).replace("point", "interval")


def test_single_cells_that_are_over_a_budget_by_luck_stop_no_model(project: Project) -> None:
    """Of 128 answers under flip_v seven cannot be read, 5.5 %, and of the 640 to all five cells with pictures 1.7 %."""
    write_questions(project.path, "B" * 128)
    project.write("policy.yaml", LENIENT)
    lost = {"flip_v": range(7), "clean": [20], "grayscale": [30], "invert": [40], "solarize:low": [50]}
    project.script(*({"setting": name, "sample": f"q{n}", "answer": "Hm."} for name, some in lost.items() for n in some))
    result = ends(project.run(), 0)
    assert "unparsed_rate" not in result.stdout.str()


def test_a_budget_that_only_all_cells_break_is_no_go_in_every_report(any_project: Project) -> None:
    """One of eight answers under each setting: no cell shows that it is too many, and no test fails."""
    unread = ("clean", "flip_v", "invert", "solarize*")
    any_project.script(*({"setting": name, "sample": "q1", "answer": "Hm."} for name in unread))
    result = ends(any_project.run("--vlm-report=out"), 1)
    said = "unparsed_rate 10.0 % > 5 % (rule max_unparsed_rate, built-in default): no answer could be read in 4 of 40 texts"
    result.stdout.fnmatch_lines(
        [
            f"FAIL model-data: {said}; most often no rule found an answer in the text ('none'), 4 of them. *",
            "NO-GO  1 verdict broke a bound",
        ]
    )
    results = any_project.results("out")
    (record,) = [entry for entry in results["records"] if entry["test"] == "budget"]
    assert (results["decision"], record["outcome"], record["n_unparsed"], record["n_requested"]) == ("NO-GO", "FAIL", 4, 48)
    junit = ElementTree.parse(any_project.path / "out" / "junit.xml").getroot()[0]
    assert junit.get("failures") == "2"
    for name in ("summary.md", "report.html", "model_card.md"):
        assert "unparsed_rate" in (any_project.path / "out" / name).read_text(encoding="utf-8"), name
    run = any_project.the_run
    assert main(["report", str(run), "--out", str(any_project.path / "again")]) == 1
    any_project.verify(run)


def test_too_few_samples_for_a_budget_are_undecided(project: Project) -> None:
    """A budget that nobody set asks for no proof, and nothing is said of it where every answer was read."""
    lenient = LENIENT.replace("80%", "10%")
    project.write("policy.yaml", lenient)
    assert "unparsed_rate" not in project.run().stdout.str()
    project.write("policy.yaml", f"{lenient}budgets: {{max_unparsed_rate: 5%}}\n")
    result = ends(project.run(), 10)
    said = "unparsed_rate 0.0 % *, too few questions to tell if <= 5 %*would decide it*"
    result.stdout.fnmatch_lines([f"INCONCLUSIVE model-data: {said}"])


def test_nothing_selected_is_five(project: Project) -> None:
    assert project.run("-k", "nothing_is_called_this").ret == 5


def test_no_rule_at_all_for_what_ran_is_not_go(project: Project) -> None:
    project.write("policy.yaml", "version: 1\nrules:\n  - {id: x, metric: worst_case_drop, max: 20pp}\n")
    ends(project.run("-k", "flip_v"), 10, "INCONCLUSIVE*")


def test_a_waived_breach_is_an_xfail_with_its_reason(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"})
    waiver = "{id: W%d, owner: jo, reason: known, expires: %s, metric: %s, cap: 100pp%s}"
    where = ", where: {setting: invert}"
    lines = [
        waiver % (1, "2999-01-01", "accuracy_drop", where),
        waiver % (2, "2999-01-01", "worst_case_drop", ", where: {dataset: data}"),
    ]
    policy = (project.path / "policy.yaml").read_text()
    project.write("policy.yaml", policy + "waivers:\n" + "".join(f"  - {line}\n" for line in lines))
    result = ends(project.run("--junitxml=junit.xml"), 0)
    result.assert_outcomes(passed=TESTS - 2, xfailed=2)
    assert properties(project, "invert")["vlm.waiver"] == "W1"
    project.write("policy.yaml", (project.path / "policy.yaml").read_text().replace("2999", "2020"))
    ends(project.run(), 1, "*expired on 2020-01-01*")


def test_other_tests_keep_their_say_in_the_exit_code(project: Project) -> None:
    project.write("suite/test_other.py", "def test_no():\n    assert 1 == 2\n")
    assert project.run().ret == 1


def test_two_models_are_told_apart(any_project: Project) -> None:
    any_project.script({"setting": "invert", "answer": "A"}, name="other")
    result = ends(any_project.run(models=("model", "other")), 1, "*FAIL other-data-invert*")
    assert "FAIL model-" not in result.stdout.str()


def test_a_summary_metric_of_the_baselines_asks_for_nothing_else(project: Project) -> None:
    result = project.run("-k", "visual_gain")
    result.stdout.fnmatch_lines([f"{2 * SAMPLES} inferences; 0 answers were cached"])


def test_copied_thresholds_hold_before_shipped_ones(project: Project) -> None:
    project.write("thresholds/default.yaml", "version: 1\nrules:\n  - {id: own, metric: accuracy, min: 1%, bogus: 2}\n")
    result = ends(project.pytester.runpytest("--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "suite"), 4)
    assert "thresholds/default.yaml:3" in result.stderr.str()


SEEN_BY_A_TEST = """
import gc

def test_threshold():
    with open("seen", "w") as file:
        file.write(" ".join(map(str, gc.get_threshold())))
"""


@pytest.mark.parametrize(("young", "meanwhile"), [(700, 20_000), (50_000, 50_000), (0, 0)])
def test_cycles_are_looked_for_less_often_until_the_run_ends(
    project: Project, monkeypatch: pytest.MonkeyPatch, young: int, meanwhile: int
) -> None:
    """Whoever has Python look more seldom still, or not at all, keeps that; without a model nothing changes."""
    project.write("suite/test_own.py", SEEN_BY_A_TEST)
    before = gc.get_threshold()
    monkeypatch.setattr(gc, "get_freeze_count", count_frozen)
    gc.unfreeze()  # what was collected; else no run unfreezes
    gc.set_threshold(young, 11, 12)
    try:
        project.run("-k", "test_threshold")
        after = gc.get_threshold()
        assert gc.get_freeze_count() == 0
        seen = (project.path / "seen").read_text()
        project.pytester.runpytest("suite/test_own.py")
        without_model = (project.path / "seen").read_text()
    finally:
        gc.set_threshold(*before)
        gc.freeze()
    assert seen == f"{meanwhile} 11 12"
    assert after == (young, 11, 12)
    assert without_model == f"{young} 11 12"


SEEN_AT_THE_END = """
import atexit
import gc

gc.unfreeze()


@atexit.register
def note():
    with open("seen", "w") as file:
        file.write(f"{gc.get_freeze_count()}")
"""


def test_nothing_is_looked_for_once_the_process_ends(project: Project) -> None:
    project.write("suite/conftest.py", SEEN_AT_THE_END)
    run_forked(project.pytester, "--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "suite")
    assert int((project.path / "seen").read_text()) > 10_000
    project.write("suite/test_own.py", "def test_own():\n    pass\n")
    run_forked(project.pytester, "suite/test_own.py")
    assert (project.path / "seen").read_text() == "0"  # as it is without a model
