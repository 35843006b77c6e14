"""What policies ask of a run as a whole, as a user meets it: exit codes, and the same words in every report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.cli import main

from .conftest import ALONE, POLICY, SAMPLES, SUITE, WORKERS, Project, ends

PARTIAL = f"{POLICY}coverage: {{tests: partial}}\n"
WAIVER = "{{id: W1, owner: jo, reason: known, expires: 2030-01-01, metric: {metric}, where: {where}, cap: 100pp}}"
NOT_ALL = "not GO: 6 of 8 tests were not selected, and GO requires all (coverage tests: whole, built-in default): run without -k"


def waive(project: Project, where: str, metric: str = "accuracy_drop", more: str = "") -> None:
    project.write("policy.yaml", f"{POLICY}waivers:\n  - {WAIVER.format(metric=metric, where=where)}\n{more}")


def test_a_part_of_the_tests_is_not_go_and_every_report_says_why(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    result = project.run("-k", "flip_v or clean", "--vlm-report=out", "--junitxml=junit.xml")
    ends(result, 10, "only 2 of 8 tests ran*", f"{NOT_ALL.replace('[', '[[]')}*", "INCONCLUSIVE  no failures*")
    result.assert_outcomes(passed=2, deselected=6)
    results = project.results("out")
    assert results["decision"] == "INCONCLUSIVE"
    assert results["shortfalls"][0].startswith("6 of 8 tests were not selected")
    summary = (project.path / "out" / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# INCONCLUSIVE\n\nno failures, but the run lacks what the policy requires for GO.")
    assert f"**{NOT_ALL}" in summary
    suite = ElementTree.parse(project.path / "junit.xml").getroot()[0]
    properties = {str(p.get("name")): str(p.get("value")) for p in suite.findall("properties/property")}
    assert properties["vlm.verdict"] == "INCONCLUSIVE"
    assert properties["vlm.shortfalls"] == results["shortfalls"][0]
    run = project.the_run
    capsys.readouterr()
    assert main(["report", str(run), "--out", str(project.path / "again")]) == 10
    again = project.results("again")
    assert (again["decision"], again["shortfalls"]) == (results["decision"], results["shortfalls"])


def test_a_policy_may_let_a_part_be_go(project: Project) -> None:
    project.write("policy.yaml", PARTIAL)
    result = project.run("-k", "flip_v or clean or worst_case_drop")
    ends(result, 0, "only 3 of 8 tests ran: the decision is about these alone", "GO  *")
    result.stdout.fnmatch_lines(["*warning the policy of model is a smoke test*"])


def test_a_part_without_any_summary_metric_that_is_gated_is_not_go(project: Project) -> None:
    project.write("policy.yaml", f"{POLICY}coverage: {{tests: partial, rules: partial}}\n")
    result = project.run("-k", "flip_v or clean")
    ends(result, 10, "not GO: 1 blocking rule on summary metrics (worst; the first in policy.yaml:7), and none app*")


@pytest.mark.parametrize("bound", ["min: 50%", "min: 50%, tier: warn"])
def test_rules_on_visual_gain_that_met_no_test_are_not_go(project: Project, bound: str) -> None:
    """The other dataset is gated; this one is not asked whether the model looks at all."""
    rule = f"  - {{id: looks, metric: visual_gain, where: {{dataset: other}}, {bound}}}\n"
    project.write("policy.yaml", f"{POLICY}{rule}coverage: {{rules: partial}}\n")
    result = project.run()
    blocks = "warn" not in bound
    assert result.ret == (10 if blocks else 0)
    assert ("not GO: 1 blocking rule on visual_gain (looks" in result.stdout.str()) is blocks
    project.write("policy.yaml", f"{POLICY}{rule.replace('other', 'data')}coverage: {{rules: partial}}\n")
    assert project.run().ret == 0


def test_a_breach_in_a_part_is_a_breach(project: Project) -> None:
    project.script({"setting": "flip_v", "answer": "A"})
    assert project.run("-k", "flip_v or clean").ret == 1


def test_workers_tell_what_was_left_out(pytester: pytest.Pytester) -> None:
    from .conftest import make_project

    project = make_project(pytester, ("-n1",))
    ends(project.run("-k", "flip_v or clean"), 10, f"{NOT_ALL}*")
    run = project.the_run
    assert main(["report", str(run)]) == 10


def test_what_failed_last_time_alone_is_no_release(project: Project) -> None:
    assert project.run().ret == 0
    ends(project.run("--lf"), 10, "not GO: --lf may leave out files, and GO requires all*")


def test_a_part_of_the_samples_is_not_go(project: Project) -> None:
    result = project.run("--vlm-sample=6")
    ends(result, 10, f"not GO: 6 of {SAMPLES} samples of data were asked, and GO requires {SAMPLES} (coverage samples: whole*")
    assert project.run(f"--vlm-sample={SAMPLES}").ret == 0
    project.write("policy.yaml", f"{POLICY}coverage: {{samples: 6}}\n")
    assert project.run("--vlm-sample=6").ret == 0
    assert project.run("--vlm-sample=4").ret == 10


@pytest.mark.parametrize("workers", [ALONE, WORKERS])
def test_a_suite_that_is_not_collected_is_said_before_anything_is_asked(project: Project, workers: Sequence[str]) -> None:
    project.write("policy.yaml", f"{POLICY}coverage: {{suites: [siute, more]}}\n")
    said = [line for line in project.run(*workers).outlines if line.startswith("vlm: warning: no gated test of ")]
    begins = (
        "vlm: warning: no gated test of test_{}.py was collected, so this run is not GO (coverage suites: {}, policy.yaml:8)."
    )
    assert said == [f"{begins.format('siute', 'siute')} Did you mean 'suite'?", f"{begins.format('more', 'more')} Collect it too"]


def test_a_suite_that_was_left_out_is_missed(project: Project) -> None:
    project.write("policy.yaml", f"{POLICY}coverage: {{suites: [suite, more]}}\n")
    project.write("suite/test_more.py", SUITE)
    assert project.run().ret == 0
    ends(
        project.run("--ignore=suite/test_more.py"),
        10,
        "not GO: no gated test of test_more.py ran (ran: suite), and GO requires it (coverage suites: more, policy.yaml:*",
    )


def test_a_misspelt_waiver_is_refused_before_anything_is_asked(any_project: Project) -> None:
    setting = "setting 'invrt' matches no setting that is known. Did you mean 'invert'?"
    dataset = "this run has no dataset 'dtaa'. Did you mean 'data'? If it is another one, leave"
    for where, problem in (("{setting: invrt}", setting), ("{dataset: dtaa}", dataset)):
        waive(any_project, where)
        result = ends(any_project.run(), 4)
        said = result.stdout.str() + result.stderr.str()
        assert f"ERROR: policy.yaml:9: waiver W1 covers nothing: {problem}" in said
        assert said.count("ERROR: ") == 1
        assert not (any_project.path / ".vlmrobust" / "predictions.sqlite").exists()


def test_a_cap_within_its_bound_is_refused_before_anything_is_asked(project: Project) -> None:
    waive(project, "{setting: invert}")
    project.write("policy.yaml", (project.path / "policy.yaml").read_text(encoding="utf-8").replace("100pp", "20pp"))
    result = ends(project.run(), 4)
    refused = (
        "ERROR: policy.yaml:9: waiver W1 of jo covers nothing: its cap of 20 pp does not go beyond the bound of rule drop "
        "(accuracy_drop <= 20 pp, policy.yaml:*). Expected a cap above 20 pp, the worst value that its owner accepts. Move*"
    )
    result.stderr.fnmatch_lines([refused])
    assert not (project.path / ".vlmrobust" / "predictions.sqlite").exists()


RULE = "  - {{id: more, metric: {metric}, {rest}}}\n"


def test_rules_may_be_about_settings_of_ones_own(project: Project) -> None:
    project.write(
        "suite/conftest.py",
        "from pytest_vlmrobust.perturbations import corruption\n\n\n"
        "@corruption(family='mine', low={'by': 1}, mid={'by': 2}, high={'by': 3}, stochastic=False)\n"
        "def own_shift(image, *, by):\n"
        "    return image[::-1]\n",
    )
    project.write("suite/test_suite.py", SUITE.replace('"invert"', '"invert", "own_shift:low"'))
    rules = "".join(
        f"  - {{id: r{number}, metric: accuracy_drop, where: {where}, max: 20pp}}\n"
        for number, where in enumerate(["{setting: own_shift}", "{family: mine}", "{setting: 'own_shift:low'}"])
    )
    project.write("policy.yaml", POLICY + rules)
    assert project.run().ret == 0


def test_a_rule_that_meets_nothing_of_what_it_bounds_is_not_go(any_project: Project) -> None:
    any_project.write("policy.yaml", POLICY + RULE.format(metric="accuracy_drop", rest="where: {category: evn}, max: 1pp"))
    result = ends(any_project.run(), 10)
    said = (
        "not GO: rule more (policy.yaml:8) applied to no test, though this run measures accuracy_drop: it asks for category 'evn'"
    )
    assert f"{said}, and the run has even, odd. Did you mean 'even'? GO requires" in result.stdout.str()
    assert "rules applied to no test of model" not in result.stdout.str()  # said once


def test_a_policy_may_have_rules_about_what_a_run_leaves_out(project: Project) -> None:
    rest = "where: {dataset: other}, max: 1pp"
    project.write("policy.yaml", POLICY + RULE.format(metric="accuracy_drop", rest=rest) + "coverage: {rules: partial}\n")
    result = ends(project.run(), 0)
    allowed = "(allowed by policy.yaml:9, coverage rules: partial)"
    result.stdout.fnmatch_lines([f"1 rule applied to no test, though what they bound was measured: more {allowed}"])


def test_a_rule_about_a_suite_that_was_not_asked_for_is_said(project: Project) -> None:
    project.write("policy.yaml", POLICY + RULE.format(metric="pcri", rest="where: {dataset: other}, min: -50%"))
    ends(project.run(), 0, "*warning 1 of 4 rules applied to no test of model: more. Not measured: pcri. A suite measures *")


def test_models_that_share_a_policy_are_looked_at_together(project: Project) -> None:
    project.script(name="second")
    project.write("policy.yaml", POLICY + RULE.format(metric="accuracy_drop", rest="where: {model: second}, max: 20pp"))
    assert project.run(models=("model", "second")).ret == 0
    assert project.run().ret == 10


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 10),
        ("  - {id: other, metric: accuracy_drop, where: {model: second}, max: 90pp, tier: warn}\n", 10),
        ("coverage: {rules: partial}\n", 0),
        ("  - {id: other, metric: accuracy_drop, where: {model: second}, max: 90pp}\n", 0),
    ],
)
def test_a_model_that_the_rules_leave_out_is_not_go_beside_others(project: Project, more: str, code: int) -> None:
    """A rule on what all models share was enough for GO of a model that loses half of its answers."""
    project.script({"setting": "invert", "sample": "q[0-3]", "answer": "A"}, name="second")
    policy = POLICY.replace("metric: accuracy_drop,", "metric: accuracy_drop, where: {model: model},")
    project.write(
        "policy.yaml", policy.replace("metric: worst_case_drop,", "metric: worst_case_drop, unless: {model: second},") + more
    )
    result = project.run(models=("model", "second"))
    said = "rule drop (policy.yaml:5) applies to model alone, and no blocking rule bounds accuracy_drop of second. GO requires*"
    ends(result, code, *([f"vlm: warning: {said}", f"*not GO: {said}"] if code else []))
    assert code or said[:-1] not in result.stdout.str()


def test_data_whose_losses_no_rule_gates_are_named(project: Project) -> None:
    (project.path / "other.jsonl").write_bytes((project.path / "data.jsonl").read_bytes())
    said = "warning other has no blocking rule about changed images: what model loses there cannot cause a NO-GO. Add a rule on*"
    scoped = POLICY.replace("metric: accuracy_drop,", "metric: accuracy_drop, where: {dataset: data},")
    scoped = scoped.replace("metric: worst_case_drop,", "metric: worst_case_drop, where: {dataset: data},")
    project.write("policy.yaml", scoped)
    ends(project.run("--vlm-dataset=other.jsonl"), 0, said)
    project.write("policy.yaml", POLICY)
    project.run("--vlm-dataset=other.jsonl").stdout.no_fnmatch_line("*about changed images*")


def test_data_that_no_rule_gates_are_named(project: Project) -> None:
    project.write(
        "policy.yaml", POLICY.replace("max:", "where: {dataset: data}, max:").replace("{setting: clean}", "{dataset: data}")
    )
    project.write("other.jsonl", (project.path / "data.jsonl").read_text(encoding="utf-8"))
    result = project.run("--vlm-dataset=other.jsonl")
    ends(result, 1, "*warning other has no blocking rule: results of model there cannot cause a NO-GO*")
    assert "rule is about data, though" not in result.stdout.str()


def test_a_waiver_whose_cap_is_exceeded_is_not_called_needless(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"})
    waive(project, "{setting: invert}")
    project.write("policy.yaml", (project.path / "policy.yaml").read_text(encoding="utf-8").replace("100pp", "30pp"))
    result = ends(project.run(), 1)
    said = "*warning policy.yaml:9: waiver W1 of jo has a cap of 30 pp, and 1 of 1 test it covers may be beyond it*"
    result.stdout.fnmatch_lines([said])
    assert "was not needed" not in result.stdout.str()


def test_the_header_says_what_a_later_file_loosens(project: Project) -> None:
    project.write("later.yaml", "version: 1\nrules: [{id: drop, metric: accuracy_drop, max: 50pp, judge: point}]\n")
    result = project.run("--vlm-thresholds=later.yaml", "-k", "clean")
    expected = "rule drop of policy.yaml:5 is replaced by later.yaml:2: accuracy_drop <= 20 pp becomes <= 50 pp (looser)"
    result.stdout.fnmatch_lines([f"vlm: policy of model: {expected}"])


def test_what_a_later_file_loosens_about_the_run_is_said_under_q_and_in_every_report(project: Project) -> None:
    project.write("later.yaml", "version: 1\nbudgets: {max_unparsed_rate: 100%}\n")
    result = project.run("--vlm-thresholds=later.yaml", "-q", "--vlm-report=report", "--junitxml=junit.xml")
    said = "budget max_unparsed_rate (built-in default) is replaced by later.yaml:2: 5% becomes 100% (looser)"
    result.stdout.fnmatch_lines([f"policy of model: {said}"])
    written = ["junit.xml", *(f"report/{name}" for name in ("summary.md", "report.html", "model_card.md", "junit.xml"))]
    assert [name for name in written if said not in (project.path / name).read_text(encoding="utf-8")] == []


def test_a_warning_is_said_beside_a_pass(project: Project) -> None:
    project.script({"setting": "invert", "sample": "q[1-7]", "answer": "A"})
    policy = (project.path / "policy.yaml").read_text(encoding="utf-8")
    project.write("policy.yaml", policy.replace("max: 20pp", "max: 99pp"))
    warns = "{id: say, metric: accuracy_drop, max: 1pp, judge: point, tier: warn}"
    project.write("warns.yaml", f"version: 1\nrules: [{warns}]\n")
    result = ends(project.run("--vlm-thresholds=warns.yaml", "--vlm-report=report", "--junitxml=junit.xml"), 0)
    said = "accuracy_drop * > 1 pp (rule say, warns.yaml:2)"
    result.stdout.fnmatch_lines([f"warning model-data-invert: {said}", "GO  *, none failed; 1 warning*"])
    for name in ("junit.xml", "report/junit.xml"):
        text = (project.path / name).read_text(encoding="utf-8")
        assert re.search(r'name="vlm\.warning" value="accuracy_drop .* \(rule say, warns\.yaml:2\)"', text)
    assert re.search(r"  - model-data-invert: accuracy_drop .*rule say", (project.path / "report/summary.md").read_text())


def test_a_waiver_about_what_the_run_leaves_out_is_said(project: Project) -> None:
    waive(project, "{setting: fog}")
    ends(project.run(), 0, "*1 of 1 waiver covers no test of model in this run: W1*")
    waive(project, "{model: other, setting: invert}")
    assert project.run().ret == 0


def test_a_waiver_about_no_test_of_a_run_that_has_all_its_policy_names_is_an_error(project: Project) -> None:
    waive(project, "{setting: fog}", more="coverage: {suites: [suite]}\n")
    ends(project.run(), 10, "not GO: policy.yaml:9: waiver W1 of jo covers no test of this run: look for a misspelt setting*")
    waive(project, "{model: other, setting: fog}", more="coverage: {suites: [suite]}\n")
    assert project.run().ret == 0


def test_a_waiver_about_a_category_that_no_data_has_is_an_error(project: Project) -> None:
    waive(project, "{setting: invert, category: oddd}")
    ends(project.run(), 10, "not GO: policy.yaml:9: waiver W1 of jo covers no test of this run: look for a misspelt category*")


def test_rules_on_an_earlier_run_say_that_there_is_none(project: Project) -> None:
    rule = "  - {id: kept, metric: baseline_drop, max: 2pp%s}\n"
    project.write("policy.yaml", POLICY + rule % "")
    ends(
        project.run(),
        10,
        "not GO: rule kept (policy.yaml:8) is not applicable: baseline_drop compares with an earlier run, and no baseline*",
    )
    project.write("policy.yaml", POLICY + rule % ", on_not_applicable: warn")
    ends(project.run(), 0, "*warning rule kept (policy.yaml:8) is not applicable*Name one with --vlm-baseline RUN")


def test_a_run_that_was_killed_after_its_last_record_is_not_go(project: Project) -> None:
    assert project.run().ret == 0
    run = project.the_run
    manifest = run / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    assert content["shortfalls"] == []
    assert main(["report", str(run)]) == 0
    from pytest_vlmrobust.plugin.results import NOT_CONCLUDED

    manifest.write_text(json.dumps({**content, "shortfalls": [NOT_CONCLUDED]}), encoding="utf-8")
    assert main(["report", str(run)]) == 10


def test_rules_that_the_samples_hardly_decide_are_said_once_before_anything_is_asked(any_project: Project) -> None:
    """Eight questions show no visual gain of 60 pp, also of a model that is always right, and a drop at most below 1."""
    rules = "  - {id: sees, metric: visual_gain, min: 60pp}\n  - {id: loose, metric: worst_case_drop, max: 99pp}\n"
    any_project.write("policy.yaml", f"version: 1\nrules:\n{rules}")
    (any_project.path / "suite/test_suite.py").rename(any_project.path / "suite/test_corruptions.py")
    result = any_project.run()
    said = [line for line in result.outlines if line.startswith("vlm: warning: ")]
    assert len(said) == 1
    assert said[0].startswith("vlm: warning: model: data: with 8 questions even a model that is always right ")
    assert "; rule sees (visual_gain >= 60 pp, " in said[0]
    assert result.outlines.index(said[0]) < next(i for i, line in enumerate(result.outlines) if "robustness ==" in line)
