"""What models, endpoints and data files write is shown, and never obeyed by a terminal."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.backends import failed_prediction, scripted
from pytest_vlmrobust.cli import main

from .conftest import SAMPLES, Project

ERROR = "\x1b[2J ]]> [/x] \x00 down\n\u202esecond line \udfff"
SHOWN = r"\x1b[2J ]]> [/x] \x00 down \u202esecond line \udfff"


def printed(project: Project, *arguments: str) -> tuple[pytest.RunResult, str]:
    result = project.run(*arguments)
    text = result.stdout.str() + result.stderr.str()
    assert [char for char in text if not char.isprintable() and char != "\n"] == []
    assert "Traceback" not in text
    return result, text


def test_an_error_of_an_endpoint_is_a_failed_inference_on_one_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    # a file of answers may not hold such text; an endpoint may send it
    monkeypatch.setattr(scripted, "failed_prediction", lambda _: failed_prediction(ERROR))
    project.script({"setting": "invert", "error": "what the endpoint sends"})
    result, text = printed(project, "--vlm-report=out", "-rA")
    assert result.ret == 11
    (line,) = [line for line in text.splitlines() if line.startswith("ERROR model-data-invert:")]
    assert line.endswith(f"most often: {SHOWN}")
    summary = (project.path / "out" / "summary.md").read_text(encoding="utf-8")
    assert r"down \u202esecond line \udfff" in summary
    assert [char for char in summary if not char.isprintable() and char != "\n"] == []
    entries = project.results("out")["records"]
    assert {record["n_errors"] for record in entries if record["id"] == "model-data-invert"} == {SAMPLES}


def test_a_long_error_is_cut(project: Project) -> None:
    project.script({"setting": "invert", "error": "x" * 1_000_000})
    _, text = printed(project, "--vlm-report=out")
    assert len(text) < 40_000
    assert (project.path / "out" / "results.json").stat().st_size < 100_000


def test_names_in_data_are_shown(project: Project) -> None:
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text().splitlines()]
    rows[0] |= {"id": "\x1b[2Jq0", "category": "\u202ecat \udfff"}
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    rule = '  - {id: c, metric: accuracy_drop, where: {category: "*"}, max: 1pp}\n'
    project.write("policy.yaml", (project.path / "policy.yaml").read_text() + rule)
    project.script({"setting": "invert", "answer": "A"})
    result, text = printed(project, "--vlm-report=out", "-v")
    assert result.ret == 1
    assert r"\x1b[2Jq0" in text
    assert r"\u202ecat \udfff" in text


def test_a_category_that_xml_cannot_hold_leaves_junit_well_formed(project: Project) -> None:
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text().splitlines()]
    project.write("data.jsonl", "".join(json.dumps({**row, "category": "c\x01d\ufffe\ud800"}) + "\n" for row in rows))
    rule = '  - {id: c, metric: accuracy_drop, where: {category: "*"}, max: 1pp}\n'
    project.write("policy.yaml", (project.path / "policy.yaml").read_text() + rule)
    project.run("--junitxml=junit.xml", "--vlm-report=out")
    run = project.the_run
    main(["junit", str(run), "--out", str(project.path / "later.xml")])
    names = []
    for file in ("junit.xml", "out/junit.xml", "later.xml"):
        properties = list(ElementTree.parse(project.path / file).iter("property"))
        names.append({name for entry in properties if "d#x" in (name := str(entry.get("name")))})
    assert "vlm.metric.accuracy_drop.c#x01d#xFFFE#xD800" in names[0]
    assert names[0] == names[1] == names[2]


def test_an_id_that_no_file_can_hold_is_refused(project: Project) -> None:
    rows = (project.path / "data.jsonl").read_text().replace('"q3"', r'"q\ud8003"')
    project.write("data.jsonl", rows)
    result, text = printed(project)
    assert result.ret == 11
    assert r"found 'q\ud8003', expected text without half of a surrogate pair, which no file can hold" in text
