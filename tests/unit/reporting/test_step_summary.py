from __future__ import annotations

from pathlib import Path

from pytest_vlmrobust.reporting.step_summary import add_step_summary


def test_it_is_added_below_what_is_there(tmp_path: Path) -> None:
    page = tmp_path / "summary"
    page.write_text("before\n")
    assert add_step_summary("# GO\n", {"GITHUB_STEP_SUMMARY": str(page)}) == ""
    assert page.read_text() == "before\n# GO\n\n"


def test_elsewhere_nothing_happens() -> None:
    assert add_step_summary("# GO\n", {}) == ""


def test_what_cannot_be_written_is_said_and_no_error(tmp_path: Path) -> None:
    said = add_step_summary("# GO\n", {"GITHUB_STEP_SUMMARY": str(tmp_path / "absent" / "x")})
    assert said.startswith("$GITHUB_STEP_SUMMARY ")
    assert said.endswith("the summary could not be added: No such file or directory")
