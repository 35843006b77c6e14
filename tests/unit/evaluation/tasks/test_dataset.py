from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import DatasetError, UnknownName
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import sampling
from pytest_vlmrobust.datasets.protocol import Dataset
from pytest_vlmrobust.evaluation.tasks import TASKS, TaskDataset, task_dataset

from .fakes import FakeCollection, faces, words

HERE = Path(__file__).parent


def facts(sample: Sample) -> list[object]:
    """Returns what a sample shows, asks and takes for right."""
    shown = [image.identity() for image in sample.images]
    return [sample.id, shown, sample.question, dict(sample.options), sample.target, dict(sample.keys)]


def digest_of_samples(dataset: Dataset) -> str:
    return fingerprint(sorted((facts(sample) for sample in dataset.samples()), key=str))


def test_the_names_of_tasks() -> None:
    assert list(TASKS) == [
        "matching",
        "matching_published",
        "pointing",
        "pointing_3x3",
        "pointing_4x4",
        "guided",
        "semi_guided",
        "unguided",
        "guided_published",
        "semi_guided_published",
    ]


def test_a_misspelt_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown task 'semiguided'\. Did you mean 'semi_guided'\? Known: guided, guided_published, m"
    ):
        task_dataset("semiguided", faces(), words())


def test_a_smaller_data_set_has_whole_identities_the_same_for_every_task() -> None:
    taken = {
        task: list(sampling.chosen(task_dataset(task, faces(), words()), "50%")) for task in ("matching", "pointing", "guided")
    }
    assert [len(samples) for samples in taken.values()] == [6, 24, 6]
    assert len({frozenset(sample.group for sample in samples) for samples in taken.values()}) == 1
    assert Counter(sample.category for sample in taken["pointing"]) == {"female": 12, "male": 12}


def test_a_number_of_samples_is_one_of_identities_the_same_for_every_task() -> None:
    tasks = ("matching", "pointing", "guided")
    taken = {task: list(sampling.chosen(task_dataset(task, faces(), words()), "6")) for task in tasks}
    assert [len(samples) for samples in taken.values()] == [6, 24, 6]
    assert len({frozenset(sample.group for sample in samples) for samples in taken.values()}) == 1
    assert set(Counter(sample.keys["position"] for sample in taken["pointing"]).values()) == {6}
    assert all(count == 4 for count in Counter(sample.group for sample in taken["pointing"]).values())


@pytest.mark.parametrize("count", ["8", "12", "17", "50%"])
def test_letters_are_balanced_in_a_smaller_data_set_too(count: str) -> None:
    """In each group they differ by one at most."""
    samples = sampling.chosen(task_dataset("matching", faces(count=40), words()), count)
    for group in ("female", "male"):
        targets = [sample.target for sample in samples if sample.category == group]
        counts = [targets.count(letter) for letter in "ABCD"]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("task", TASKS)
def test_it_is_a_data_set_whose_samples_are_made_once(task: str) -> None:
    made: Dataset = task_dataset(task, faces(), words(), id_prefix="f-")
    assert isinstance(made, TaskDataset)
    assert (made.name, made.task) == (f"faces.{task}", task)
    assert made.samples() is made.samples()
    ids = [sample.id for sample in made.samples()]
    assert len(set(ids)) == len(ids)
    assert all(one.startswith("f-faces-") for one in ids)


@pytest.mark.parametrize("task", TASKS)
def test_the_order_of_the_identities_does_not_matter(task: str) -> None:
    straight, turned = task_dataset(task, faces(), words()), task_dataset(task, faces(turned=5), words(turned=7))
    assert digest_of_samples(straight) == digest_of_samples(turned)
    assert [sample.group for sample in straight.samples()] != [sample.group for sample in turned.samples()]


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_makes_the_same_samples(hash_seed: str) -> None:
    program = (
        "import fakes\n"
        "from pytest_vlmrobust.core.fingerprint import fingerprint\n"
        "from pytest_vlmrobust.evaluation.tasks import TASKS, task_dataset\n"
        "for task in TASKS:\n"
        "    made = task_dataset(task, fakes.faces(), fakes.words()).samples()\n"
        "    print(fingerprint([[s.id, [i.identity() for i in s.images], dict(s.options), s.target] for s in made]))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    here = [
        fingerprint(
            [
                [sample.id, [image.identity() for image in sample.images], dict(sample.options), sample.target]
                for sample in task_dataset(task, faces(), words()).samples()
            ]
        )
        for task in TASKS
    ]
    assert done.stdout.split() == here


def test_another_seed_makes_other_samples() -> None:
    for task in ("matching", "pointing"):
        one, other = (task_dataset(task, faces(), words(), seed=seed) for seed in (1, 2))
        assert digest_of_samples(one) != digest_of_samples(other)
        assert one.digest != other.digest


def test_the_digest_follows_task_seed_prefix_and_both_collections() -> None:
    base = task_dataset("matching", faces(), words())
    others = [
        dataclasses.replace(base, task="pointing"),
        dataclasses.replace(base, seed=1),
        dataclasses.replace(base, id_prefix="x"),
        dataclasses.replace(base, collection=faces(count=13)),
        dataclasses.replace(base, other=words(count=13)),
    ]
    assert base.digest == task_dataset("matching", faces(), words()).digest
    assert len({base.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("task", "edge", "native"),
    [
        ("matching", 160, 160),
        ("guided", None, None),
        ("pointing", 160, None),
        ("pointing", 1024, 1024),
        ("pointing_3x3", 1024, None),
        ("pointing", None, None),
    ],
)
def test_the_long_edge_is_known_where_a_collage_has_that_of_the_pictures(task: str, edge: int | None, native: int | None) -> None:
    collection = faces(native_long_edge=edge, size=(edge or 100, edge or 100))
    assert task_dataset(task, collection, words()).native_long_edge == native


def test_strata_are_categories_and_else_groups() -> None:
    assert {sample.category for sample in task_dataset("matching", faces(), words()).samples()} == {"female", "male"}
    assert {sample.category for sample in task_dataset("matching", words(), faces()).samples()} == {""}
    assert all("group" not in sample.keys for sample in task_dataset("matching", words(), faces()).samples())


TOO_FEW = (
    "faces.pointing_4x4: 14 near neighbours are shown beside the target, and 'faces' has 8 identities. Add images of others "
    "until it has 15"
)
ONE_DOMAIN = (
    "faces.matching: one candidate comes from another domain, and 'people' is of the same one, 'face'. "
    "Pass a collection of another domain"
)
EMPTY = "faces.pointing: the collection 'words', from which one candidate comes, is empty"
DUPLICATE = (
    "faces.matching: two of the 4 candidates for 'faces-0000' are one and the same image, so that the right answer "
    "cannot be told. Remove the duplicate from the collection"
)


@pytest.mark.parametrize(
    ("task", "collection", "other", "message"),
    [
        ("pointing_4x4", faces(most_neighbours=7), words(), TOO_FEW),
        ("matching", faces(), faces(name="people"), ONE_DOMAIN),
        ("pointing", faces(), words(count=0), EMPTY),
        ("matching", faces(same=True), words(), DUPLICATE),
    ],
    ids=["too_few", "one_domain", "empty", "duplicate"],
)
def test_what_a_collection_lacks_is_said(task: str, collection: FakeCollection, other: FakeCollection, message: str) -> None:
    with pytest.raises(DatasetError) as error:
        task_dataset(task, collection, other).samples()
    assert str(error.value) == message


def test_a_collection_that_gives_too_few_neighbours_without_a_word_is_refused() -> None:
    class Mean(FakeCollection):
        def neighbours(self, entity, count):  # type: ignore[no-untyped-def]
            return super().neighbours(entity, count)[:1]

    with pytest.raises(DatasetError, match="2 near neighbours of 'faces-0000' are needed, and the collection gave 1"):
        task_dataset("matching", Mean(), words()).samples()


def test_a_collection_that_refuses_neighbours_says_why() -> None:
    class Poor(FakeCollection):
        def neighbours(self, entity, count):  # type: ignore[no-untyped-def]
            raise DatasetError(f"there are no {count} others of {entity.id}")

    expected = (
        "faces.pointing: 2 near neighbours of 'faces-0000' are needed, and there are no 2 others of faces-0000. Add identities "
        "to the collection, or ask for a task with fewer candidates"
    )
    with pytest.raises(DatasetError) as caught:
        task_dataset("pointing", Poor(), words()).samples()
    assert str(caught.value) == expected


def test_localisation_needs_nothing_of_the_other_domain() -> None:
    assert len(task_dataset("guided", faces(), words(count=0)).samples()) == 12
