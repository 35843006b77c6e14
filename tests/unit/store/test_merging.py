from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.merging import Merge, merge_stores


def letter(name: str, *logprobs: float) -> Prediction:
    return Prediction(name, LETTER_LOGITS, logprobs=dict(zip("AB", logprobs, strict=True)))


def filled(
    directory: Path,
    answers: Mapping[str, Prediction],
    setting: str,
    digests: Mapping[str, list[str]] | None = None,
    **about: str,
) -> Path:
    with Store.open(directory) as store:
        store.put_many(answers, context={"model": "m", "dataset": "d", "setting": setting, **about})
        store.put_digests(digests or {}, {recipe: [f"note of {recipe}"] for recipe in digests or {}})
    return directory


def test_a_merge_holds_what_the_stores_hold(tmp_path: Path) -> None:
    fog = filled(tmp_path / "fog", {"k1": letter("A", -0.1, -2.0), "k2": Prediction("B", "generate")}, "fog:low", {"r1": ["p"]})
    rain = filled(
        tmp_path / "rain", {"k2": Prediction("B", "generate"), "k3": Prediction("C", "generate")}, "rain:low", {"r2": []}
    )
    merge = merge_stores([rain, fog], tmp_path / "all")
    assert merge == Merge(3, ((rain, 2), (fog, 1)))
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["predictions.sqlite"]
    with Store.open(tmp_path / "all") as store, Store.open(fog) as first:
        assert store.get_many(["k1", "k2", "k3"]) == {**first.get_many(["k1", "k2"]), "k3": Prediction("C", "generate")}
        assert [store.context(key) for key in ("k1", "k3")] == [
            {"model": "m", "dataset": "d", "setting": f"{name}:low"} for name in ("fog", "rain")
        ]
        assert store.get_digests(["r1", "r2"]) == {"r1": ("p",), "r2": ()}
        assert store.get_notes(["r1", "r2"]) == {"r1": ("note of r1",), "r2": ("note of r2",)}


def test_leases_of_a_part_stay_behind(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {"k1": Prediction("A", "generate")}, "clean")
    with Store.open(part) as store:
        store.claim(["k2"], "somebody", 1e9)
    merge_stores([part], tmp_path / "all")
    with Store.open(tmp_path / "all") as store:
        assert store.claim(["k2"], "another", 60.0) == {"k2"}


def test_log_probabilities_that_rounding_changed_are_one_answer(tmp_path: Path) -> None:
    one = filled(tmp_path / "one", {"k": letter("A", -0.101, -2.31)}, "clean")
    two = filled(tmp_path / "two", {"k": letter("A", -0.102, -2.30)}, "clean")
    assert merge_stores([one, two], tmp_path / "all").answers == 1
    with Store.open(tmp_path / "all") as store:
        assert store.get_many(["k"])["k"].logprobs == {"A": -0.101, "B": -2.31}


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (letter("B", -2.3, -0.1), r"'A', 'B'"),
        (letter("A", -0.001, -7.0), r"'A', 'A'"),
        (Prediction("A", "generate"), r"'A', 'A'"),
        (Prediction("A", LETTER_LOGITS, logprobs={"A": -0.1}), r"'A', 'A'"),
    ],
)
def test_answers_that_contradict_each_other_are_refused(tmp_path: Path, other: Prediction, shown: str) -> None:
    one = filled(tmp_path / "one", {"k" * 64: letter("A", -0.1, -2.3)}, "clean")
    two = filled(tmp_path / "two", {"k" * 64: other}, "clean")
    with pytest.raises(StoreError, match=rf"two/predictions\.sqlite: 1 answer differ.* such as k{{12}} of m-d-clean \({shown}\)"):
        merge_stores([one, two], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_pictures_that_came_out_otherwise_are_refused(tmp_path: Path) -> None:
    parts = [filled(tmp_path / name, {}, "clean", {"r": [name]}) for name in ("one", "two")]
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "new" / "all", tmp_path / "mine"):
        with pytest.raises(StoreError, match=r"two/predictions\.sqlite: 1 image came out otherwise"):
            merge_stores(parts, out)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "mine").iterdir()) == [], "a directory that was there before is left"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {}, "clean")
    with pytest.raises(StoreError, match=r"nothing: there is no store to read\. Name the directory that holds"):
        merge_stores([part, tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(StoreError, match="are one store"):
        merge_stores([part, tmp_path / "x" / ".." / "part"], tmp_path / "all")
    with pytest.raises(StoreError, match="there is a store already"):
        merge_stores([part], part)
    (tmp_path / "folder" / "predictions.sqlite").mkdir(parents=True)
    with pytest.raises(StoreError, match="folder: there is no store to read"):
        merge_stores([part, tmp_path / "folder"], tmp_path / "all")
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "predictions.sqlite").touch()
    with pytest.raises(
        StoreError, match=r"blank/predictions\.sqlite: there is no store to read\. A run that fills it writes one"
    ):
        merge_stores([part, tmp_path / "blank"], tmp_path / "all")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot open the store: .*file.*name another directory with --out"):
        merge_stores([part], tmp_path / "file")


@pytest.mark.parametrize(("column", "value"), [("answer", "not JSON"), ("answer", "{}"), ("context", "not JSON")])
def test_damage_that_a_merge_meets_is_named(tmp_path: Path, column: str, value: str) -> None:
    one, two = (filled(tmp_path / name, {"k": Prediction(name, "generate")}, "clean") for name in ("A", "B"))
    damages = {"answer": "update predictions set answer = ?", "context": "update contexts set content = ?"}
    with sqlite3.connect(two / "predictions.sqlite") as connection:
        connection.execute(damages[column], (value,))
    connection.close()
    with pytest.raises(StoreError, match=r"B/predictions\.sqlite: (the prediction 'k' cannot be read|1 answer differ)"):
        merge_stores([one, two], tmp_path / "all")


def test_a_store_of_another_schema_is_refused(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {}, "clean")
    with sqlite3.connect(part / "predictions.sqlite") as connection:
        connection.execute("pragma user_version = 0")
    connection.close()
    with pytest.raises(StoreError, match=r"has schema 0, and this release reads schema 1\. Use the release of"):
        merge_stores([part], tmp_path / "all")


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_merge_is_the_same_in_parts_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("pytest_vlmrobust.store.merging._ROWS", rows)
    answers = {f"k{number}": Prediction(str(number), "generate") for number in range(5)}
    one = filled(tmp_path / "one", {key: answers[key] for key in ("k0", "k2", "k4")}, "clean", {"r1": ["p"], "r3": ["q"]})
    two = filled(tmp_path / "two", answers, "fog", {"r1": ["p"], "r2": ["s"], "r3": ["q"]})
    assert merge_stores([one, two], tmp_path / "all") == Merge(5, ((one, 3), (two, 2)))
    with Store.open(tmp_path / "all") as store:
        assert store.get_many(answers) == answers
        assert store.get_digests(["r1", "r2", "r3"]) == {"r1": ("p",), "r2": ("s",), "r3": ("q",)}
        assert store.get_notes(["r2"]) == {"r2": ("note of r2",)}
    wrong = filled(tmp_path / "wrong", {key: Prediction("x", "generate") for key in answers}, "clean")
    with pytest.raises(StoreError, match=r"5 answers differ .* such as (k\d of m-d-clean \('\d', 'x'\)(; )?){3}\. One"):
        merge_stores([one, two, wrong], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_answers_of_another_model_by_the_same_name_are_refused(tmp_path: Path) -> None:
    answer = {"k1": Prediction("A", "generate")}
    old = filled(tmp_path / "old", {"k0": Prediction("A", "generate")}, "clean")
    one = filled(tmp_path / "one", answer, "clean", fingerprint="1234")
    two = filled(tmp_path / "two", {"k2": Prediction("A", "generate")}, "fog", fingerprint="5678")
    both = filled(tmp_path / "both", {"k3": Prediction("A", "generate")}, "clean", fingerprint="5678")
    filled(both, answer, "clean", fingerprint="1234")
    assert merge_stores([one, both, two, old], tmp_path / "all").answers == 4
    with pytest.raises(
        StoreError, match=r"two/predictions\.sqlite: its answers of 'm' have the fingerprint 5678, and .* 1234: other"
    ):
        merge_stores([old, one, two], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_part_in_a_directory_that_can_only_be_read_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = filled(tmp_path / "part", {"k": Prediction("A", "generate")}, "clean")
    monkeypatch.setattr("pytest_vlmrobust.store.database.os.access", lambda *_: False)  # who runs the tests may write anywhere
    assert merge_stores([part], tmp_path / "all").answers == 1
    assert [path.name for path in part.iterdir()] == ["predictions.sqlite"], "not even the files of a log beside it"
