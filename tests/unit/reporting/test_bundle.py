"""A bundle has everything, is the same each time, and what was changed in it is named."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pytest_vlmrobust.core.cell import CLEAN, Cell
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Example, Measure, Picture, Reply
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.reporting.bundle import RATIO, SMALL, underivable_claims, unpack, write_bundle
from pytest_vlmrobust.reporting.files import read_run
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.results import results, results_json, same_json
from pytest_vlmrobust.reporting.writing import write_text
from pytest_vlmrobust.store import Answer, Evidence, Journal, StoredCell, write_manifest
from pytest_vlmrobust.store.run_directory import write_docket

from .conftest import record

POLICY = b"version: 1\n"
POLICY_FILE = f"policies/{hashlib.sha256(POLICY).hexdigest()[:12]}-policy.yaml"
NAMES = [
    "SHA256SUMS",
    "cells.csv",
    "docket.json",
    "junit.xml",
    "manifest.json",
    "model_card.md",
    POLICY_FILE,
    "predictions.sqlite",
    "records.jsonl",
    "results.json",
    "summary.md",
]


EXAMPLE = Example("q1", "newly_wrong", "Which?", {"A": "x"}, "A", replies=(Reply("clean", "A", "A"),))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run leaves; nothing here is judged."""
    directory = tmp_path / "store" / "runs" / "r1"
    write_manifest(directory, {"run": "r1", "planned": 2, "selected": 2, "version": "0.1.0"})
    applied = {"name": "t/policy.yaml", "sha256": hashlib.sha256(POLICY).hexdigest()}
    write_docket(
        directory,
        {"tests": [{"nodeid": "cell a"}, {"nodeid": "cell b"}], "policies": {"m": {"files": [applied]}}},
        [(applied["name"], applied["sha256"], POLICY)],
    )
    with Journal(directory) as journal:
        journal.append(record("a"))
        journal.append(record("b"))
    with Evidence.open(directory) as evidence:
        evidence.put_samples("d", "x", [Sample("s", (), "?", "B", "choice", {"A": "a", "B": "b"})])
        evidence.put_cells(
            [StoredCell(Cell("m", "d", CLEAN), 1, (Answer("k", Prediction("B", "generate"), Score(1.0, "letter", "B")),))]
        )
    return directory


def names(bundle: Path) -> list[str]:
    with zipfile.ZipFile(bundle) as archive:
        return archive.namelist()


def rewritten(bundle: Path, change: Callable[[dict[str, bytes]], None], packed: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    other = bundle.with_name("other.zip")
    with zipfile.ZipFile(other, "w", packed) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return other


def summed(files: dict[str, bytes]) -> None:
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files) if name != "SHA256SUMS"]
    files["SHA256SUMS"] = "".join(lines).encode()


def test_it_holds_everything_with_its_hash(run: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "out" / "b.zip"
    assert write_bundle(run, bundle) == names(bundle) == NAMES
    (tmp_path / "unpacked").mkdir()
    assert unpack(bundle, tmp_path / "unpacked") == []
    sums = (tmp_path / "unpacked" / "SHA256SUMS").read_text().splitlines()
    assert [line[66:] for line in sums] == NAMES[1:]
    read = read_run(tmp_path / "unpacked")
    assert [record.id for record in read.records] == ["a", "b"]
    assert underivable_claims(read) == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.zip"]


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "one.zip")
    write_bundle(run, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_the_page_and_the_baseline_are_taken_along_where_there_are_any(run: Path, tmp_path: Path) -> None:
    (run / "report.html").write_text("<p>")
    Evidence.open(run / "baseline").close()
    assert {"report.html", "baseline/predictions.sqlite"} <= set(write_bundle(run, tmp_path / "b.zip"))
    assert unpack(tmp_path / "b.zip", tmp_path / "unpacked") == []


def test_a_page_is_compared_whole_whichever_images_are_on_it(run: Path, tmp_path: Path) -> None:
    """The images of a page may be any, as a bundle lacks them; that one is absent changes what the page says."""
    pictures = tuple(
        Picture(f"{digit * 64}.webp", caption) for digit, caption in zip("abc", ("clean", "fog", "haze"), strict=True)
    )
    with Journal(run) as journal:
        journal.append(replace(record("b", Outcome.FAIL, 0.25), examples=(replace(EXAMPLE, pictures=pictures),)))
    folder = run / ".." / ".." / "pictures"
    folder.mkdir()
    for picture, content in zip(pictures[1:], (b"2", b"3"), strict=True):  # the first is no longer in the store
        (folder / picture.file).write_bytes(b"RIFF1234WEBP" + content)
    page = render_html(read_run(run))
    assert "1 of 3 thumbnails are not on this page" in page
    write_text(run / "report.html", page)
    write_bundle(run, tmp_path / "b.zip")

    def claims_of(name: str, before: str, after: str) -> list[str]:
        def forged(files: dict[str, bytes]) -> None:
            assert before.encode() in files["report.html"]
            files["report.html"] = files["report.html"].replace(before.encode(), after.encode())
            summed(files)

        assert unpack(rewritten(tmp_path / "b.zip", forged), tmp_path / name) == []
        return underivable_claims(read_run(tmp_path / name))

    assert claims_of("true", "<", "<") == []
    images = re.findall(r"UklGRjEyMzRXRUJQ\w+=*", page)
    assert len(images) == 2
    assert claims_of("other image", images[0], images[1]) == []
    for name, before, after in [
        ("no image", f'"{images[0]}"', '""'),
        ("fewer images", f'"{images[0]}",', ""),
        ("no images", '"pictures":[', '"photos":['),
    ]:
        (said,) = claims_of(name, before, after)
        assert said.startswith("report.html is not what the records give: line "), said
    (said,) = claims_of("text", "All tests, worst first", "All tests, best first")
    assert said.endswith("has '\"#tests\">All tests, best first</a>' in place of '\"#tests\">All tests, worst first</a>'"), said


def test_a_run_without_its_policies_is_not_bundled(run: Path, tmp_path: Path) -> None:
    (policy,) = (run / "policies").iterdir()
    policy.write_bytes(b"version: 1 # changed")
    with pytest.raises(StoreError, match=r"policy.yaml has the SHA-256 \w+: the run applied t/policy.yaml with"):
        write_bundle(run, tmp_path / "b.zip")
    policy.unlink()
    with pytest.raises(StoreError, match=r"policies/\w+-policy.yaml is missing: the run applied t/policy.yaml"):
        write_bundle(run, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_only_the_policies_that_the_run_applied_are_taken_along(run: Path, tmp_path: Path) -> None:
    (run / "policies" / "0-strict.yaml").write_text("version: 1")
    (policy,) = (name for name in write_bundle(run, tmp_path / "b.zip") if name.startswith("policies/"))
    assert policy.endswith("-policy.yaml")


def test_a_run_without_its_baseline_is_not_bundled(run: Path, tmp_path: Path) -> None:
    docket = json.loads((run / "docket.json").read_text())
    (run / "docket.json").write_text(json.dumps({**docket, "baseline": True}))
    with pytest.raises(StoreError, match=r"baseline/predictions\.sqlite: there is no evidence of a run to read"):
        write_bundle(run, tmp_path / "b.zip")
    Evidence.open(run / "baseline").close()
    assert "baseline/predictions.sqlite" in write_bundle(run, tmp_path / "b.zip")


def test_a_run_that_was_killed_is_bundled_with_what_it_has(run: Path, tmp_path: Path) -> None:
    journal = run / "records.jsonl"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0] + b'{"torn')
    write_bundle(run, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert json.loads(archive.read("results.json"))["decision"] == "INCOMPLETE"
        assert b"ended before this test left a verdict" in archive.read("junit.xml")


def changed(files: dict[str, bytes]) -> None:
    files["records.jsonl"] = files["records.jsonl"].replace(b"PASS", b"FAIL", 1)


def removed(files: dict[str, bytes]) -> None:
    del files[POLICY_FILE]


def added(files: dict[str, bytes]) -> None:
    files["more.txt"] = b"?"


def unsummed(files: dict[str, bytes]) -> None:
    files["policies/more.yaml"] = b"?"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed, "records.jsonl was changed: its SHA-256 is not the one in SHA256SUMS"),
        (removed, f"{POLICY_FILE} is missing"),
        (added, "more.txt does not belong in a bundle, and was not checked"),
        (unsummed, "policies/more.yaml is not in SHA256SUMS"),
    ],
)
def test_what_was_changed_is_named(run: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], said: str) -> None:
    write_bundle(run, tmp_path / "b.zip")
    (tmp_path / "unpacked").mkdir()
    assert unpack(rewritten(tmp_path / "b.zip", change), tmp_path / "unpacked") == [said]


def test_a_report_that_says_something_else_is_named_though_its_hash_is_right(run: Path, tmp_path: Path) -> None:
    def polished(files: dict[str, bytes]) -> None:
        files["summary.md"] = b"# GO"
        summed(files)

    write_bundle(run, tmp_path / "b.zip")
    (tmp_path / "unpacked").mkdir()
    assert unpack(rewritten(tmp_path / "b.zip", polished), tmp_path / "unpacked") == []
    (said,) = underivable_claims(read_run(tmp_path / "unpacked"))
    assert said.startswith("summary.md is not what the records give: line 2 has the end of the file in place of '"), said


def test_a_line_that_reads_like_the_end_of_a_file_is_named(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.zip")
    (tmp_path / "unpacked").mkdir()
    assert unpack(tmp_path / "b.zip", tmp_path / "unpacked") == []
    with (tmp_path / "unpacked" / "summary.md").open("a", encoding="utf-8") as file:
        file.write("\n(end of the file)")
    (said,) = underivable_claims(read_run(tmp_path / "unpacked"))
    assert said.endswith(" has '(end of the file)' in place of the end of the file"), said


def _change_results(run: Path, change: Callable[[dict[str, Any]], object]) -> list[str]:
    """Returns what is wrong with a run whose results.json was changed."""
    with Journal(run) as journal:
        journal.append(replace(record("b", Outcome.FAIL, 0.25), n_samples=900, examples=(EXAMPLE,)))
    read = read_run(run)
    content = results(read)
    change(content)
    (run / "results.json").write_text(json.dumps(content), encoding="utf-8")
    return underivable_claims(read)


def _without(*names: str) -> Callable[[dict[str, Any]], object]:
    """Returns a change that takes fields out of the second record; a dot leads into the first part of a field."""

    def change(content: dict[str, Any]) -> None:
        for name in names:
            place = content["records"][1]
            *parents, field = name.split(".")
            for parent in parents:
                place = place[parent][0]
            del place[field]

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda _content: None,
        lambda content: content["records"].__setitem__(0, dict(reversed(content["records"][0].items()))),
    ],
)
def test_order_of_keys_in_results_says_nothing(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    assert _change_results(run, change) == []


@pytest.mark.parametrize(
    "change",
    [
        _without("not_asked", "positions", "n_guessed"),
        _without("measures.category", "examples.replies.rule"),
        _without("outcome"),
        _without("measures"),
        _without("measures.bound"),
        _without("measures.value"),
        _without("examples.replies"),
        _without("key"),
        lambda content: content.pop("stopped"),
        lambda content: content.update(decision="GO"),
        lambda content: content.update(note=""),
        lambda content: content["records"].pop(),
        lambda content: content["records"].reverse(),
        lambda content: content["records"][1].update(n=101),
        lambda content: content["records"][1].update(n=100.0),
        lambda content: content["records"][0].update(n_unparsed=False),
        lambda content: content["records"][0].update(verdict="PASS"),
        lambda content: content["records"][1]["measures"][0].update(value=0.2500001),
        lambda content: content["records"][1]["measures"].append(content["records"][0]["measures"][0]),
        lambda content: content["records"][1]["categories"].update(even=1.0),
        lambda content: content["records"][1].update(examples={}),
    ],
)
def test_results_that_say_something_else_are_named(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    assert _change_results(run, change) == ["results.json is not what the records give"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"decision": "GO"', b'"decision": "NO-GO", "decision": "GO"'),  # of which another reader may take the first
        (b'"low": null', b'"low": NaN'),
        (b"{", b"\xef\xbb\xbf{"),
        (b"{", b"[" * 100_000 + b"{"),
        (b"}\n", b""),
    ],
)
def test_results_that_readers_may_understand_differently_are_named(run: Path, old: bytes, new: bytes) -> None:
    view = replace(read_run(run), records=[record("a", measures=(Measure("accuracy_drop", 0.1),)), record("b")])
    text = results_json(view).encode()
    assert same_json(text, results_json(view))
    other = text.replace(old, new, 1) if old != b"}\n" else text.removesuffix(old)
    assert other != text
    assert not same_json(other, results_json(view))


def test_another_decision_than_the_one_of_the_records_is_named(run: Path, tmp_path: Path) -> None:
    write_manifest(run, {"run": "r1", "planned": 2, "selected": 2, "decision": "GO"})
    assert underivable_claims(read_run(run)) == []
    with Journal(run) as journal:
        journal.append(record("b", Outcome.FAIL))
    assert underivable_claims(read_run(run)) == ["the run decided GO, and its records give NO-GO"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\evil"])
def test_names_outside_are_refused_before_anything_is_unpacked(run: Path, tmp_path: Path, name: str) -> None:
    write_bundle(run, tmp_path / "b.zip")
    (tmp_path / "unpacked").mkdir()
    with pytest.raises(StoreError, match="which no bundle holds: nothing was unpacked"):
        unpack(rewritten(tmp_path / "b.zip", lambda files: files.update({name: b"x"})), tmp_path / "unpacked")
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_a_name_that_no_file_system_takes_does_not_belong(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.zip")
    name = f"policies/{'é' * 128}"

    def add(files: dict[str, bytes]) -> None:
        files[name] = b"x"
        summed(files)
        del files[name]

    for change in (lambda files: files.update({name: b"x"}), add):
        changed = rewritten(tmp_path / "b.zip", change)
        (tmp_path / "unpacked").mkdir()
        assert unpack(changed, tmp_path / "unpacked") == [f"{name} does not belong in a bundle, and was not checked"]
        shutil.rmtree(tmp_path / "unpacked")


def test_a_disk_that_is_full_is_said_and_not_taken_for_a_bad_bundle(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(run, tmp_path / "b.zip")
    monkeypatch.setattr(shutil, "copyfileobj", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match=r"b\.zip: cannot unpack '.*' into .*unpacked: No space left on device$"):
        unpack(tmp_path / "b.zip", tmp_path / "unpacked")


def test_a_name_that_stands_twice_is_named(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("results.json", archive.read("results.json"))
    assert unpack(tmp_path / "b.zip", tmp_path / "unpacked") == ["results.json is in it 2 times"]


def test_a_byte_that_was_turned_over_is_said_with_its_file(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.zip")
    whole = (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        about = archive.getinfo("results.json")
    start = about.header_offset + 30 + len(about.filename)
    for at in range(start, start + about.compress_size // 2, 11):
        (tmp_path / "t.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        with pytest.raises(StoreError, match=r"t\.zip: results\.json is damaged: "):
            unpack(tmp_path / "t.zip", tmp_path / "unpacked")


def test_what_would_fill_the_disk_is_refused_before_anything_is_unpacked(run: Path, tmp_path: Path) -> None:
    def filled(files: dict[str, bytes]) -> None:
        files["report.html"] = bytes(SMALL)

    write_bundle(run, tmp_path / "b.zip")
    bomb = rewritten(tmp_path / "b.zip", filled, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size * RATIO < SMALL
    with pytest.raises(StoreError, match=r"other\.zip: would unpack to \d+ bytes, more than the 67108864 that a file of its"):
        unpack(bomb, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no zip", "cannot be read: .*Expected a ZIP file that vlmrobust bundle wrote"),
        (b"PK\x05\x06" + bytes(18), "has no SHA256SUMS"),
    ],
)
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(StoreError, match=words):
        unpack(tmp_path / "b.zip", tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_another_way_of_packing_is_refused(run: Path, tmp_path: Path, method: int) -> None:
    write_bundle(run, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive, zipfile.ZipFile(tmp_path / "c.zip", "w", method) as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name))
    packed = bytearray((tmp_path / "c.zip").read_bytes())
    packed[60:80] = bytes(20)  # which the decoder of LZMA meets with an error of its own
    (tmp_path / "c.zip").write_bytes(packed)
    with pytest.raises(StoreError, match=f"is packed by method {method}"):
        unpack(tmp_path / "c.zip", tmp_path / "unpacked")


def test_a_name_that_is_not_utf_8_is_refused(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive:
        archive.writestr("README-ä.txt", b"")
    content = (tmp_path / "b.zip").read_bytes().replace("README-ä.txt".encode(), b"README-\xff\xfe.txt")
    (tmp_path / "c.zip").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read: 'utf-8' codec"):
        unpack(tmp_path / "c.zip", tmp_path / "unpacked")


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "docket.json").unlink()
    with pytest.raises(StoreError, match=r"docket\.json: cannot be read: .*Expected the directory of a run that measured"):
        write_bundle(run, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
def test_what_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "pipe.zip", Path("/dev/zero")):
        with pytest.raises(StoreError, match=r"is a pipe or a device, and reading it might never end"):
            unpack(path, tmp_path / "out")
    with pytest.raises(StoreError, match=r"cannot be read: Is a directory\. Expected a ZIP file"):
        unpack(folder, tmp_path / "out")
