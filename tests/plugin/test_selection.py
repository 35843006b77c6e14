"""An argument that names less than a file is a part of it, whatever it names; naming every test of a file is no part."""

from __future__ import annotations

import pytest

from .conftest import ALONE, POLICY, WORKERS_IF_SLOW, Project, ends, make_project

CLASSES = """
import pytest


class TestA:
    @pytest.mark.vlm_settings("clean", "invert")
    def test_cell(self, vlm_cell):
        vlm_cell.check()


class TestB:
    @pytest.mark.vlm_settings("flip_v", "solarize:low")
    def test_cell(self, vlm_cell):
        vlm_cell.check()

    class TestInner:
        @pytest.mark.vlm_settings("flip_v")
        @pytest.mark.vlm_metrics("worst_case_drop")
        def test_sweep(self, vlm_sweep):
            vlm_sweep.check()


class TestPlain:
    def test_nothing(self):
        pass


@pytest.mark.vlm_settings("grayscale")
def test_alone(vlm_cell):
    vlm_cell.check()
"""
TESTS = 2 + 2 + 1 + 1
FILE = "suite/test_suite.py"
EVERY = (
    f"{FILE}::TestA::test_cell[model-data-clean]",
    f"{FILE}::TestA::test_cell[model-data-invert]",
    f"{FILE}::TestB",
    f"{FILE}::test_alone",
)


@pytest.fixture(params=[ALONE, WORKERS_IF_SLOW])
def project(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    return with_classes(pytester, request.param)


def with_classes(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> Project:
    made = make_project(pytester, arguments)
    made.script({"setting": "solarize:low", "answer": "A"})
    made.write(FILE, CLASSES)
    made.write("suite/__init__.py", "")
    made.write("policy.yaml", POLICY)
    return made


def named(project: Project, *arguments: str) -> pytest.RunResult:
    given = ("--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml", "-p", "no:randomly")
    return project.pytester.runpytest(*given, *project.arguments, *arguments)


def refuses_a_part(project: Project, arguments: list[str], selected: int) -> None:
    project.script()
    result = named(project, *arguments)
    ends(result, 10, f"only {selected} of {TESTS} tests ran*", f"not GO: {TESTS - selected} of {TESTS} tests*", "INCONCLUSIVE*")


@pytest.mark.parametrize(
    ("arguments", "selected"),
    [
        ([f"{FILE}::TestA"], 2),
        ([f"{FILE}::TestA::test_cell"], 2),
        ([f"{FILE}::TestA::test_cell[model-data-invert]"], 1),
        ([f"{FILE}::TestB::TestInner"], 1),
        ([f"{FILE}::TestB::TestInner::test_sweep", f"{FILE}::TestA"], 3),
        ([f"{FILE}::test_alone"], 1),
        (["-o", "pythonpath=.", "--pyargs", "suite.test_suite::TestA"], 2),
    ],
    ids=["class", "method", "one", "inner", "two", "function", "pyargs"],
)
def test_a_part_of_a_file_is_not_go(project: Project, arguments: list[str], selected: int) -> None:
    refuses_a_part(project, arguments, selected)


def test_a_policy_may_let_a_part_of_a_file_be_go(project: Project) -> None:
    without_summaries = POLICY[: POLICY.index("  - {id: worst")]
    project.write("policy.yaml", f"{without_summaries}coverage: {{tests: partial}}\n")
    assert named(project, f"{FILE}::TestA").ret == 0


def test_a_file_and_every_test_of_it_by_its_id_are_the_file(project: Project) -> None:
    project.script()
    assert named(project, FILE).ret == 0
    result = ends(named(project, *EVERY), 0)
    result.assert_outcomes(passed=TESTS)
    assert "partial" not in result.stdout.str()


def test_a_class_that_gates_nothing_asks_for_no_gated_test(project: Project) -> None:
    result = named(project, f"{FILE}::TestPlain", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert "partial" not in result.stdout.str()


def test_the_share_of_risk_does_not_depend_on_the_class_that_is_named(project: Project) -> None:
    """What a rule's tests share is divided by all of them, also by those that the arguments leave out."""
    project.write("policy.yaml", POLICY.replace("judge: point", "judge: interval"))
    seen: list[list[str]] = []
    for arguments in ([FILE], [f"{FILE}::TestA"]):
        named(project, *arguments, f"--vlm-store=s{len(seen)}")
        dockets = (project.path / f"s{len(seen)}" / "runs").glob("*/docket.json")
        seen.append([docket.read_text().partition('"shared_by"')[2].partition("}")[0] for docket in dockets])
    assert seen[0]
    assert seen[0] == seen[1]


def test_a_class_that_cannot_be_collected_may_hold_more(project: Project) -> None:
    broken = """

class TestBroken:
    def pytest_generate_tests(self, metafunc):
        raise RuntimeError("broken")

    def test_cell(self, vlm_cell):
        pass
"""
    project.script()
    project.write(FILE, CLASSES + broken)
    ends(named(project, *EVERY), 10, "not GO: a test id (of a file whose TestBroken cannot be collected) may leave out *")


def test_a_part_of_a_file_is_not_go_with_workers(pytester: pytest.Pytester) -> None:
    refuses_a_part(with_classes(pytester, ("-n2",)), [f"{FILE}::TestB::TestInner::test_sweep", f"{FILE}::TestA"], 3)


def test_files_outside_of_the_rootdir_whose_tests_share_ids_are_refused(pytester: pytest.Pytester) -> None:
    project = make_project(pytester, ())
    project.script()
    project.write("policy.yaml", POLICY)
    project.write("here/pytest.ini", "[pytest]\n")
    suite = CLASSES[: CLASSES.index("class TestA")] + CLASSES[CLASSES.index('@pytest.mark.vlm_settings("grayscale")') :]
    files = [str(project.write(f"{name}/test_{name}.py", suite)) for name in ("one", "two")]
    result = named(project, "--rootdir=here", *files)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (said,) = [line for line in result.errlines if "is the id of two tests" in line]
    assert "'::test_alone[model-data-grayscale]' is the id of two tests, in " in said
    assert said.endswith(f"Add --rootdir={project.path}")
    assert named(project, f"--rootdir={project.path}", *files).ret != pytest.ExitCode.USAGE_ERROR
