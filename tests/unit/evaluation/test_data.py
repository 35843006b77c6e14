"""What a run asks from, by the names in test ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.evaluation.data import RunData
from pytest_vlmrobust.evaluation.tasks import TASKS


def test_without_names_the_embedded_data_are_asked() -> None:
    assert list(RunData(()).questions) == ["shapes", "words"]
    assert list(RunData(()).collections) == ["faces", "words"]
    assert list(RunData((), small=True).collections) == ["faces_160", "words_160"]


def test_a_name_may_mean_questions_and_identities() -> None:
    data = RunData(("words",))
    assert (list(data.questions), list(data.collections)) == (["words"], ["words"])


def test_a_collection_alone_asks_no_questions() -> None:
    data = RunData(("faces_160",))
    assert (data.questions, list(data.collections)) == ({}, ["faces_160"])
    assert list(data.of_tasks(["matching", "pointing"]).items()) == [
        ("faces_160.matching", "matching"),
        ("faces_160.pointing", "pointing"),
    ]


def test_questions_alone_make_no_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("")
    assert RunData((str(file), "shapes")).tasks == {}


def test_the_other_domain_has_pictures_of_the_same_size() -> None:
    dataset = RunData(("faces_160",)).open("faces_160.matching")
    sizes = {image.load().shape for image in dataset.samples()[0].images}
    assert sizes == {(160, 160, 3)}


def test_a_collection_is_opened_once_for_all_its_tasks() -> None:
    data = RunData(("faces_160",))
    first, second = data.open("faces_160.matching"), data.open("faces_160.guided")
    assert getattr(first, "collection", None) is getattr(second, "collection", 1)


def test_every_task_can_be_opened_by_name() -> None:
    assert set(RunData(("words_160",)).factories) == {f"words_160.{task}" for task in TASKS}


def test_two_names_that_would_look_alike_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shapes.tsv"
    with pytest.raises(UsageError, match="'shapes' in test ids"):
        _ = RunData(("shapes", str(folder))).questions


def test_what_does_not_exist_is_said_by_check() -> None:
    with pytest.raises(DatasetError, match="'shaeps' was not found"):
        RunData(("shaeps",)).check()
