"""Metadata of the data as slices in rules: judged by themselves, named in reports, and refused where no row is in them."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project, ends

RULE = "  - {{id: s, metric: accuracy_drop, where: {where}, judge: point, max: 20pp}}\n"


@pytest.fixture
def parted(project: Project) -> Project:
    """Even questions are of the night, odd ones of the day or of no known time; the model fails on half of the night."""
    rows = [json.loads(line) for line in (project.path / "data.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row.update({"meta": {"camera": "night"}} if number % 2 == 0 else {"meta.camera": "day"} if number % 4 == 1 else {})
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    night = [str(row["id"]) for row in rows if row.get("meta")][::2]
    project.script(*({"setting": "invert", "sample": name, "answer": "?"} for name in night))
    return project


def with_rule(project: Project, where: str) -> None:
    project.write("policy.yaml", (project.path / "policy.yaml").read_text() + RULE.format(where=where))


@pytest.mark.cases(
    ("where", "problem"),
    [
        ("{meta.camera: nigth}", "no row of data has meta.camera 'nigth'. Did you mean 'night'? In the data, meta.camera is "),
        ("{meta.camra: night}", "no row of data has meta.camra 'night'. Did you mean 'meta.camera'? In the data, metadata"),
        ("{meta.camera: night, category: even}", "asks for meta.camera and category. Expected one of them"),
    ],
)
def test_a_slice_without_rows_is_an_error(parted: Project, where: str, problem: str) -> None:
    before = (parted.path / "policy.yaml").read_text()
    with_rule(parted, where)
    result = parted.run()
    parted.write("policy.yaml", before)
    assert result.ret == 4
    assert problem in result.stderr.str()


def test_data_that_cannot_be_read_are_not_said_to_lack_a_slice(parted: Project) -> None:
    with_rule(parted, "{meta.camera: night}")
    parted.write("data.jsonl", "{}")
    ends(parted.run("--vlm-report=out"), 11, "INCOMPLETE  8 tests ended in an error*")
    assert "data.jsonl:1" in (parted.path / "out" / "summary.md").read_text()


def test_a_rule_judges_each_slice_by_itself(parted: Project) -> None:
    with_rule(parted, "{meta.camera: '*'}")
    parted.run("--vlm-report=out")
    records = parted.results("out")["records"]
    (record,) = (record for record in records if record["setting"] == "invert")
    measured = {measure["category"]: measure["outcome"] for measure in record["measures"] if measure["category"]}
    assert measured == {"meta.camera=night": "FAIL", "meta.camera=day": "PASS", "meta.camera=(missing)": "PASS"}
    assert measured.keys() <= record["categories"].keys()
    assert "; also broken: accuracy_drop (meta.camera=night)" in record["reason"]
