"""Which questions are asked once more, and whose pictures they are shown."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.cell import AGAIN, EXCHANGED
from pytest_vlmrobust.evaluation.run.probes import FEWEST, PROBED, exchanges, probed_places
from tests.unit.evaluation.conftest import MemoryImage, picture, sample

LETTERS = "AB"


def test_pictures_come_from_another_source_with_another_answer() -> None:
    samples = [sample(n, target=LETTERS[n // 2 % 2], group=f"g{n // 4}") for n in range(200)]
    partners = exchanges(samples)
    assert len(partners) == PROBED
    by_id = {each.id: each for each in samples}
    for name, other in partners.items():
        assert (by_id[name].target, by_id[name].group) != (other.target, other.group)
        assert by_id[name].target != other.target
    places = probed_places(EXCHANGED, samples)
    assert [samples[place].id for place in places] == [*partners]
    assert places[0] < 20
    assert places[-1] > 170  # spread over the dataset


def test_as_many_pictures_are_shown_as_the_question_has() -> None:
    two = (MemoryImage(picture(0)), MemoryImage(picture(1)))
    samples = [sample(n, target=LETTERS[n % 2], **({"images": two} if n % 3 else {})) for n in range(40)]
    by_id = {each.id: each for each in samples}
    partners = exchanges(samples)
    assert len(partners) == PROBED
    assert all(len(other.images) == len(by_id[name].images) for name, other in partners.items())


@pytest.mark.parametrize(
    "samples",
    [
        [sample(n) for n in range(40)],  # one right answer
        [sample(n, target=LETTERS[n % 2], group="g") for n in range(40)],  # one source
        [sample(n, target=LETTERS[n % 2], images=()) for n in range(40)],
        [sample(n, target=LETTERS[n % 2]) for n in range(FEWEST - 1)],
        [],
    ],
    ids=["one answer", "one source", "no images", "few", "none"],
)
def test_where_nothing_can_be_exchanged_nothing_is_asked(samples: list) -> None:  # type: ignore[type-arg]  # of samples
    assert probed_places(EXCHANGED, samples) == []


def test_questions_that_are_asked_alone_need_pictures_alone() -> None:
    assert len(probed_places(AGAIN, [sample(n) for n in range(40)])) == PROBED
    assert probed_places(AGAIN, [sample(n) for n in range(FEWEST)]) == [*range(FEWEST)]
    assert probed_places(AGAIN, [sample(n, images=()) for n in range(40)]) == []


def test_a_large_dataset_of_nearly_one_answer_takes_no_time() -> None:
    samples = [sample(n, images=(MemoryImage(picture(0)),)) for n in range(3000)]
    samples[1500] = sample(1500, target="A")
    assert len(exchanges(samples)) == PROBED
