"""Whoever changes a bundle and sums its hashes up again is found out, or is told of nothing but what nobody can compare."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.cli import main

from .conftest import Project
from .test_evidence import flawed

Files = dict[str, bytes]
Change = Callable[[Files], None]


def load(bundle: Path) -> Files:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def save(files: Files, path: Path) -> Path:
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files) if name != "SHA256SUMS")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, "SHA256SUMS": sums.encode()}.items():
            archive.writestr(name, content)
    return path


def manifest(change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(files: Files) -> None:
        content = json.loads(files["manifest.json"])
        change(content)
        files["manifest.json"] = json.dumps(content).encode()

    return apply


def sql(folder: Path, *statements: str, name: str = "predictions.sqlite") -> Change:
    def apply(files: Files) -> None:
        (folder / "t.sqlite").write_bytes(files[name])
        connection = sqlite3.connect(folder / "t.sqlite")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        files[name] = (folder / "t.sqlite").read_bytes()

    return apply


def twice(files: Files) -> None:
    files["records.jsonl"] += files["records.jsonl"].splitlines(keepends=True)[0]


@pytest.fixture
def bundle(project: Project, capsys: pytest.CaptureFixture[str]) -> Path:
    flawed(project)
    project.run()
    main(["bundle", str(project.the_run), "--out", str(project.path / "b.zip")])
    capsys.readouterr()
    return project.path / "b.zip"


def test_what_contradicts_something_else_in_the_bundle_differs(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bundle.parent
    changes: dict[str, Change] = {
        "manifest.json: policies.model.waivers is not what the files in policies give": manifest(
            lambda content: content["policies"]["model"]["waivers"][0].update(owner="the board")
        ),
        "manifest.json: policies.model.rules is not what the files in policies give": manifest(
            lambda content: content["policies"]["model"].update(rules=[])
        ),
        "manifest.json: models.model.location is not what docket.json gives": manifest(
            lambda content: content["models"]["model"].update(location="/trusted")
        ),
        "manifest.json: date is not what docket.json gives": manifest(lambda content: content.update(date="2020-01-01")),
        "predictions.sqlite: holds 'evil', which no run writes": sql(folder, "create table evil (x)"),
        "predictions.sqlite: is about the model 'other', which docket.json lacks": sql(
            folder, "insert into models values ('other', '{}')"
        ),
        "predictions.sqlite: has answers of the model 'model' but not its fingerprint": sql(folder, "delete from models"),
        "README.txt does not belong in a bundle, and was not checked": lambda files: files.update({"README.txt": b"x"}),
        "its record is in records.jsonl 2 times": twice,
    }
    for said, change in changes.items():
        files = load(bundle)
        change(files)
        assert main(["verify", str(save(files, folder / "t.zip"))]) == 1, said
        assert said in capsys.readouterr().out


def test_what_cannot_be_compared_is_said(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = load(bundle)
    assert main(["verify", str(bundle)]) == 0
    assert "note: fingerprints of models, digests of datasets and of images, images in report.html" in capsys.readouterr().out
    files["models.html"] = b"<h1>GO</h1>"  # of a run of one model
    assert main(["verify", str(save(files, bundle.with_name("t.zip")))]) == 1
    assert "DIFFERS  models.html is not what the records give: line 1 has '<h1>GO</h1>' in place of ''" in capsys.readouterr().out


def test_a_page_that_says_something_else_differs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    flawed(project)
    project.run()
    assert main(["report", str(project.the_run)]) == 1
    main(["bundle", str(project.the_run), "--out", str(project.path / "b.zip")])
    capsys.readouterr()
    files = load(project.path / "b.zip")
    page = files["report.html"].decode()
    assert main(["verify", str(project.path / "b.zip")]) == 0
    assert "note: fingerprints of models, digests of datasets and of images, images in report.html" in capsys.readouterr().out
    heading = '<h1 id="decision-h">'
    changes = {
        page.replace("NO-GO", "GO").replace("✗ GO", "✓ GO"): "has '<title>GO: ",
        page.replace(f"{heading}NO-GO", f"{heading}GO"): f"has '{heading}GO</h1>' in place of '{heading}NO-GO</h1>'",
        page.replace("</main>", "<h1>GO</h1></main>"): "has '<h1>GO</h1></main>' in place of '</main>'",
        page.replace("100.0 pp", "1.0 pp"): "1.0 pp",
        "<h1>NO-GO</h1>": "line 1 has '<h1>NO-GO</h1>' in place of '<!doctype html>'",
    }
    for changed, sentence in changes.items():
        assert changed != page
        files["report.html"] = changed.encode()
        assert main(["verify", str(save(files, project.path / "t.zip"))]) == 1, sentence
        said = capsys.readouterr().out
        assert "DIFFERS  report.html is not what the records give: line " in said
        assert sentence in said


def test_a_page_of_other_records_differs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    flawed(project)
    project.run()
    first = project.the_run
    main(["report", str(first), "--out", str(project.path / "first")])
    project.script({"setting": "invert", "answer": "A"}, {"setting": "flip_v", "sample": "q[0-2]", "answer": "A"})
    project.run()
    main(["bundle", str(newest(project)), "--out", str(project.path / "b.zip")])
    files = load(project.path / "b.zip")
    files["report.html"] = (project.path / "first" / "report.html").read_bytes()
    capsys.readouterr()
    assert main(["verify", str(save(files, project.path / "t.zip"))]) == 1
    assert "DIFFERS  report.html is not what the records give: line " in capsys.readouterr().out


@pytest.fixture
def letters(project: Project, capsys: pytest.CaptureFixture[str]) -> Path:
    """The bundle of a run that was answered by the probabilities of letters: A (wrong) with the picture turned over."""
    right, wrong = {"A": -2.5, "B": -0.25}, {"A": -0.25, "B": -2.5}
    rules = [{"setting": "flip_v", "letter": "A", "logprobs": wrong}, {"setting": "no_image", "letter": "A", "logprobs": wrong}]
    project.script(*rules, {"setting": "*", "letter": "B", "logprobs": right})
    project.run()
    main(["bundle", str(project.the_run), "--out", str(project.path / "b.zip")])
    assert main(["verify", str(project.path / "b.zip")]) == 0
    capsys.readouterr()
    return project.path / "b.zip"


WRONG, RIGHT = '{"A": -0.25, "B": -2.5}', '{"A": -2.5, "B": -0.25}'
OF_CELL = "where place = 3 and cell = (select id from cells where setting = 'flip_v')"


@pytest.mark.parametrize(
    ("change", "letter", "scores"),
    [
        # swapped log-probabilities: the text says A, as before
        (f"prediction = replace(prediction, '{WRONG}', '{RIGHT}')", "A", "stored 0 (scored, letter_logits, 'A'), scored again 1"),
        # another letter, and the score that it gives
        (
            """prediction = replace(prediction, '"text": "A"', '"text": "B"'), value = 1.0, answer = 'B'""",
            "B",
            "stored 1 (scored, letter_logits, 'B'), scored again 0 (scored, letter_logits, 'A')",
        ),
        # another letter, which nothing counts
        (
            """prediction = replace(prediction, '"text": "A"', '"text": "B"')""",
            "B",
            "stored 0 (scored, letter_logits, 'A'), scored",
        ),
        # a log-probability that is no number gives no letter
        (
            "prediction = replace(prediction, '-2.5', 'NaN')",
            "A",
            "stored 0 (scored, letter_logits, 'A'), scored again 0 (unparsed",
        ),
    ],
    ids=["swapped", "letter and score", "letter", "not a number"],
)
def test_letters_are_taken_from_their_log_probabilities(
    letters: Path, capsys: pytest.CaptureFixture[str], change: str, letter: str, scores: str
) -> None:
    files = load(letters)
    sql(letters.parent, f"update answers set {change} {OF_CELL}")(files)  # noqa: S608 - the test's own
    assert main(["verify", str(save(files, letters.with_name("t.zip")))]) == 1
    said = f"DIFFERS  model-data-flip_v, sample 'q3': its log-probabilities do not give the letter '{letter}': {scores}"
    assert said in capsys.readouterr().out


def nested(files: Files) -> None:
    files["manifest.json"] = b"[" * 100_000


def test_what_is_damaged_cannot_be_read(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bundle.parent
    changes: list[tuple[str, Change]] = [
        ("manifest.json: not a manifest", nested),
        (
            "not a sample of this release: the sample has the unknown key 'questions'",
            sql(folder, unknown_key("question", "questions")),
        ),
        (
            "'q0': not a sample of this release: the sample has the unknown",
            sql(folder, unknown_key('"images"', '"pictures"')),
        ),
        ("predictions.sqlite", sql(folder, "update cells set notes = '[]'")),
        ("has 8 answers, expected 79999999992", sql(folder, "update cells set views = 9999999999")),
        ("has 7 answers, expected 8", sql(folder, "delete from answers where place = 3")),
        ("manifest.json:", manifest(lambda content: content.update(store=5))),
        ("records.jsonl:1: not a record of this release: id of the record is 5, expected text", typed_otherwise),
        ("manifest.json", manifest(lambda content: content.update(planned="many", selected=[]))),
        ("manifest.json", manifest(lambda content: content.update(models=5))),
        ("manifest.json", manifest(lambda content: content.pop("planned"))),
    ]
    for said, change in changes:
        files = load(bundle)
        change(files)
        assert main(["verify", str(save(files, folder / "t.zip"))]) == 4, said
        shown = capsys.readouterr()
        assert f"{folder / 't.zip'}: " in shown.err
        assert said in shown.err
        assert "/vlmrobust-" not in shown.err


def typed_otherwise(files: Files) -> None:
    first, *others = files["records.jsonl"].splitlines(keepends=True)
    files["records.jsonl"] = b"".join([json.dumps({**json.loads(first), "id": 5}).encode() + b"\n", *others])


def test_a_changed_baseline_in_a_bundle_differs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("--vlm-report=first")
    project.run("--vlm-baseline=first")
    main(["bundle", str(newest(project)), "--out", str(project.path / "b.zip")])
    assert main(["verify", str(project.path / "b.zip")]) == 0
    for statement, said in {
        "update answers set value = 0 where place = 1": "sample 'q1': stored 0 (scored, ",
        """update answers set prediction = replace(prediction, '"B"', '"A"') where place=1""": "sample 'q1': stored 1 (scored, ",
    }.items():
        files = load(project.path / "b.zip")
        sql(project.path, statement, name="baseline/predictions.sqlite")(files)
        capsys.readouterr()
        assert main(["verify", str(save(files, project.path / "t.zip"))]) == 1
        assert f"baseline: model-data-clean, {said}" in capsys.readouterr().out
    files = load(project.path / "b.zip")
    sql(project.path, "delete from answers where place = 1", name="baseline/predictions.sqlite")(files)
    assert main(["verify", str(save(files, project.path / "t.zip"))]) == 4
    assert "baseline/predictions.sqlite: model-data-clean has 7 answers, expected 8" in capsys.readouterr().err


def newest(project: Project) -> Path:
    return max((project.path / ".vlmrobust" / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def unknown_key(name: str, other: str) -> str:
    return f"update samples set content = replace(content, '{name}', '{other}')"  # noqa: S608 - the test's own
