from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets.protocol import Entity
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.evaluation.tasks import task_dataset
from pytest_vlmrobust.evaluation.tasks.pictures import Moved

from .fakes import FACE_BOXES, FakeCollection, faces, words

MOVED = ("guided", "semi_guided", "unguided")
PUBLISHED = ("guided_published", "semi_guided_published")
TASKS = (*MOVED, *PUBLISHED)


def samples_of(task: str, collection: FakeCollection) -> list[Sample]:
    return list(task_dataset(task, collection, words()).samples())


def told_and_asked(task: str, collection: FakeCollection) -> tuple[dict[str, object], dict[str, object]]:
    about = samples_of(task, collection)[0].localisation
    assert about is not None
    return dict(about.given), dict(about.boxes)


Told = tuple[dict[str, object], dict[str, object]]
REST = {name: box for name, box in FACE_BOXES.items() if name != "nose"}
WORD = {"word": (12.0, 70.0, 148.0, 101.0)}
CORNER = {"corner": (12.0, 70.0, 12.0, 70.0)}


@pytest.mark.parametrize(
    ("task", "of_face", "of_word"),
    [
        ("guided", (FACE_BOXES, FACE_BOXES), (WORD, WORD)),
        ("semi_guided", ({"nose": FACE_BOXES["nose"]}, REST), (CORNER, WORD)),
        ("unguided", ({}, REST), ({}, WORD)),
    ],
)
def test_what_is_told_and_what_is_asked(task: str, of_face: Told, of_word: Told) -> None:
    for collection, (given, asked) in ((faces(), of_face), (words(), of_word)):
        told, wanted = told_and_asked(task, collection)
        assert list(told) == list(given)
        assert (told == given) == (task != "semi_guided")  # the hint is told where the query has it
        assert list(wanted) == list(asked)
        assert wanted != asked
        if f"{task}_published" in PUBLISHED:
            assert told_and_asked(f"{task}_published", collection) == (given, asked)


def test_the_hint_is_where_the_query_has_it_and_everything_else_is_told_of_the_support() -> None:
    hinted, whole = samples_of("semi_guided", faces())[0], samples_of("guided", faces())[0]
    assert hinted.localisation is not None
    assert whole.localisation is not None
    assert hinted.localisation.given["nose"] == whole.localisation.boxes["nose"]
    assert (hinted.localisation.given_in, whole.localisation.given_in) == (1, 0)


@pytest.mark.parametrize("task", TASKS)
def test_the_query_is_under_the_setting_and_the_support_is_not(task: str) -> None:
    for sample in samples_of(task, faces()):
        assert sample.perturbed == (1,)
        assert (sample.images[0].identity() == sample.images[1].identity()) == (task in PUBLISHED)
        assert (sample.task, sample.scorer, sample.seeded_by, sample.group) == ("boxes", "boxes", sample.id, sample.id)
        assert sample.localisation is not None
        assert sample.localisation.size == (160, 160)
    support, query = ViewMaker(1).view(samples_of(task, faces())[0], Setting.parse("gaussian_blur:high")).images
    assert not np.array_equal(support, query)


def test_tasks_with_and_without_a_hint_have_the_same_ids() -> None:
    ids = [[sample.id for sample in samples_of(task, faces())] for task in TASKS]
    assert all(other == ids[0] for other in ids)


def test_the_move_is_one_for_all_tasks_and_another_for_each_identity_and_seed() -> None:
    made = {task: samples_of(task, faces()) for task in MOVED}
    queries = [[sample.images[1].identity() for sample in samples] for samples in made.values()]
    assert queries[0] == queries[1] == queries[2]
    moves = {query.move for sample in made["guided"] if isinstance(query := sample.images[1], Moved)}
    assert len(moves) == len(made["guided"])
    other = task_dataset("guided", faces(), words(), seed=1).samples()
    assert other[0].images[1].identity() != queries[0][0]


def test_what_moves_things_makes_other_boxes_right_and_what_blurs_them_does_not() -> None:
    changed = samples_of("guided", faces())[0].changed_by
    assert {"left_right", "up_down", "position", "rotate", "shear", "elastic_transform"} <= changed
    assert not {"gaussian_blur", "colour", "pixelate", "jpeg_compression"} & changed


@pytest.mark.parametrize("task", TASKS)
def test_nothing_is_asked_where_nobody_has_boxes(task: str) -> None:
    made = task_dataset(task, faces(boxes={}), words())
    assert made.lacking == (
        f"faces.{task}: boxes are asked for, and none of 12 identities has them (the first, 'faces-0000', has no boxes). Give "
        "them in the collection's annotations. Matching and pointing need no boxes"
    )
    assert made.notes == ()
    with pytest.raises(DatasetError) as error:
        made.samples()
    assert str(error.value) == made.lacking


@pytest.mark.parametrize("task", TASKS)
def test_who_has_no_boxes_is_left_out_and_counted(task: str) -> None:
    class Some(FakeCollection):
        def entities(self) -> list[Entity]:
            return [replace(one, boxes=FACE_BOXES if place % 3 else {}) for place, one in enumerate(super().entities())]

    some, everyone = task_dataset(task, Some(), words()), task_dataset(task, faces(), words())
    assert list(some.samples()) == [sample for place, sample in enumerate(everyone.samples()) if place % 3]
    assert some.lacking == ""
    (note,) = some.notes
    assert note == (
        "faces: 4 of 12 identities are left out where boxes are asked for (the first, 'faces-0000', has no boxes). Give them in "
        "the collection's annotations"
    )
    assert everyone.notes == task_dataset("matching", Some(), words()).notes == ()


@pytest.mark.parametrize("task", ["semi_guided", "unguided"])
def test_the_hint_has_to_be_known_and_not_be_everything(task: str) -> None:
    with pytest.raises(DatasetError, match="has no box of 'nose', only of 'left_eye', 'mouth', 'right_eye'"):
        samples_of(task, faces(boxes=REST))
    with pytest.raises(DatasetError, match="has a box of 'nose' and no other: nothing is left to ask for"):
        samples_of(task, faces(boxes={"nose": FACE_BOXES["nose"]}))


def test_guided_needs_no_hint() -> None:
    assert told_and_asked("guided_published", faces(boxes=REST)) == (REST, REST)
    assert told_and_asked("guided", faces(boxes=REST))[0] == REST
