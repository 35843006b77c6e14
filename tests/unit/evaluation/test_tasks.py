"""What a model reads: the words are frozen, as models are trained and answers are stored under them."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.backends.chat import malformed, message
from pytest_vlmrobust.core.boxes import CONVENTIONS, Localisation, box_space, overlap
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.prediction import PROMPT_MODES, Request
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.datasets.protocol import Collection, Entity
from pytest_vlmrobust.demo.faces import FaceCollection
from pytest_vlmrobust.demo.word_collection import WordCollection
from pytest_vlmrobust.evaluation.run.prompts import prompt, scorable_choices
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.evaluation.tasks import TASKS, task_dataset
from pytest_vlmrobust.evaluation.tasks.pictures import Collage
from tests.unit.evaluation.conftest import present
from tests.unit.evaluation.tasks.fakes import FakeCollection, faces, words

BOX_TASKS = ("guided", "semi_guided", "unguided", "guided_published", "semi_guided_published")
INSTRUCTION = (
    "Please select the correct answer from the options above. Respond with only the letter of the correct option. "
    "Do not explain. Answer:"
)


def samples_of(task: str, collection: FakeCollection) -> list[Sample]:
    other = faces() if collection.domain == "word" else words()
    return list(task_dataset(task, collection, other).samples())


def spoken_in(sample: Sample, convention: str, seen: tuple[int, int] | None = None) -> Sample:
    about = present(sample.localisation)
    space = box_space(convention, about.size, seen)
    return dataclasses.replace(sample, localisation=dataclasses.replace(about, space=space))


def test_the_words_of_matching() -> None:
    assert prompt(samples_of("matching", faces())[0], "direct") == (
        f"Question: This picture shows a face: {IMAGE_MARK}\nWhich option shows the same face?\nOptions:\n"
        f"A. {IMAGE_MARK}\nB. {IMAGE_MARK}\nC. {IMAGE_MARK}\nD. {IMAGE_MARK}\n{INSTRUCTION}"
    )


def test_the_words_of_pointing() -> None:
    first = samples_of("pointing", words())[0]
    options = "".join(f"{letter}. {cell}\n" for letter, cell in first.options.items())
    assert prompt(first, "direct") == (
        f"Question: This picture shows a word: {IMAGE_MARK}\nThis grid has 2 rows and 2 columns: {IMAGE_MARK}\n"
        f"Which cell [row,column] of the grid shows the same word? [0,0] is at the top left.\nOptions:\n{options}{INSTRUCTION}"
    )


def test_the_words_of_localisation() -> None:
    sample = samples_of("semi_guided", faces())[0]
    nose = [round(edge) for edge in present(sample.localisation).given["nose"]]
    assert prompt(sample, "direct") == (
        f"The first picture shows a face: {IMAGE_MARK}\n"
        f"The second picture shows the same face at another size and in another place: {IMAGE_MARK}\n"
        "Each picture is 160 pixels wide and 160 pixels high. A box is written in pixels, x before y: x is 0 at the left edge "
        "and 160 at the right edge, y is 0 at the top edge and 160 at the bottom edge; x1 and y1 are the top left corner, x2 and "
        "y2 the bottom right corner.\n"
        "Left and right are as you see them in the picture.\n"
        f'In the second picture: {{"nose": {{"x1": {nose[0]}, "y1": {nose[1]}, "x2": {nose[2]}, "y2": {nose[3]}}}}}\n'
        "Find the box of each of these in the second picture: left_eye, right_eye, mouth.\n"
        'Answer with JSON of this form only: {"left_eye": {"x1": ..., "y1": ..., "x2": ..., "y2": ...}, '
        '"right_eye": {"x1": ..., "y1": ..., "x2": ..., "y2": ...}, "mouth": {"x1": ..., "y1": ..., "x2": ..., "y2": ...}}\n'
        "Each ... is a whole number. Leave out what you do not find; if you find nothing, answer []. Do not explain."
    )


def test_where_nothing_is_moved_nothing_is_said_about_it() -> None:
    moved, published = (prompt(samples_of(task, faces())[0], "direct") for task in ("guided", "guided_published"))
    assert published == moved.replace(" at another size and in another place", "")
    assert published != moved


def test_the_corner_of_a_word_is_told_as_a_point() -> None:
    text = prompt(samples_of("semi_guided", words())[0], "direct")
    assert re.search(r'In the second picture: {"corner": {"x": \d+, "y": \d+}}\n', text)
    text = prompt(samples_of("semi_guided_published", words())[0], "direct")
    assert 'In the first picture: {"corner": {"x": 12, "y": 70}}\n' in text
    assert "Find the box of each of these in the second picture: word.\n" in text
    assert "Left and right" not in text


def test_without_a_hint_nothing_is_told() -> None:
    for collection in (faces(), words()):
        assert not re.search("In the (first|second) picture", prompt(samples_of("unguided", collection)[0], "direct"))


@pytest.mark.cases("task", TASKS)
@pytest.mark.cases("mode", PROMPT_MODES)
def test_there_is_a_place_for_every_picture_and_without_them_the_same_words(task: str, mode: str) -> None:
    for sample in samples_of(task, faces())[:2]:
        text = prompt(sample, mode)
        pixels = tuple(np.zeros((4, 4, 3), np.uint8) for _ in sample.images)
        assert malformed(Request("", pixels, text)) == ""
        assert text.count(IMAGE_MARK) == len(sample.images)
        (only,) = message((), text)["content"]
        assert only == {"type": "text", "text": text.replace(IMAGE_MARK, "")}


class Renamed(FakeCollection):
    """The same pictures of others."""

    def _entity(self, number: int) -> Entity:
        return dataclasses.replace(super()._entity(number), label=f"Zxqy{number}")


@pytest.mark.cases("task", TASKS)
@pytest.mark.cases("mode", PROMPT_MODES)
def test_who_it_is_is_never_said(task: str, mode: str) -> None:
    for plain, other in zip(samples_of(task, faces()), samples_of(task, Renamed()), strict=True):
        text = prompt(other, mode)
        assert text == prompt(plain, mode)
        assert not re.search(r"Zxqy|faces-\d|Label|male", text)


@pytest.mark.cases("task", BOX_TASKS)
def test_reasoning_is_asked_for_in_the_chain_of_thought_mode_alone(task: str) -> None:
    sample = samples_of(task, faces())[0]
    assert "step by step" in prompt(sample, "cot")
    assert "Do not explain" not in prompt(sample, "cot")
    assert prompt(sample, "thinking") == prompt(sample, "direct")
    assert "step by step" not in prompt(sample, "direct")
    assert all(scorable_choices(sample, mode) == () for mode in PROMPT_MODES)


def test_letters_are_scored_for_matching_and_pointing() -> None:
    assert scorable_choices(samples_of("matching", faces())[0], "direct") == tuple("ABCD")
    assert scorable_choices(samples_of("pointing_3x3", faces())[0], "direct") == tuple("ABCDEFGHI")


@pytest.mark.cases(
    ("convention", "seen", "said"),
    [
        ("pixels", None, "160 pixels high. A box is written in pixels, x before y: x is 0 at the left edge and 160"),
        (
            "resized_pixels",
            (140, 140),
            "140 pixels high. A box is written in pixels, x before y: x is 0 at the left edge and 140",
        ),
        ("thousandths", None, "160 pixels high. A box is written in thousandths of its width and height, x before y: x is 0 at"),
        ("thousandths_yx", None, "thousandths of its width and height, y before x: x is 0 at the left edge and 1000 at the"),
        ("fractions", None, "fractions of its width and height, x before y: x is 0 at the left edge and 1 at the right"),
    ],
)
def test_coordinates_are_said_in_words(convention: str, seen: tuple[int, int] | None, said: str) -> None:
    assert said in prompt(spoken_in(samples_of("guided", faces())[0], convention, seen), "direct")


def boxes_told(text: str) -> Any:
    return json.loads(text.partition("In the first picture: ")[2].partition("\n")[0])


@given(
    st.sampled_from(CONVENTIONS),
    st.tuples(st.integers(40, 2000), st.integers(40, 2000)),
    st.tuples(*[st.floats(0, 1, allow_subnormal=False)] * 4),
)
def test_boxes_that_are_told_can_be_read_back(
    convention: str, size: tuple[int, int], corners: tuple[float, float, float, float]
) -> None:
    (left, right), (top, bottom) = sorted(corners[:2]), sorted(corners[2:])
    box = (left * size[0], top * size[1], right * size[0] + 1, bottom * size[1] + 1)
    space = box_space(convention, size, (980, 700))
    about = Localisation(size, {"word": box}, {"word": box}, space)
    text = prompt(Sample("1", (), "Where?", "", "boxes", localisation=about), "direct")
    written = boxes_told(text)["word"]
    assert list(written) == (["x1", "y1", "x2", "y2"] if space.order == "xy" else ["y1", "x1", "y2", "x2"])
    step = 0.0005 if convention.startswith("fractions") else 0.5
    slack = (step * size[0] / space.width + 1e-6, step * size[1] / space.height + 1e-6) * 2
    read = space.read(tuple(written.values()), size)
    assert all(abs(edge - other) <= most for edge, other, most in zip(read, box, slack, strict=True))
    assert all(isinstance(number, float if convention.startswith("fractions") else int) for number in written.values())


def test_a_sample_without_boxes_cannot_ask_for_them() -> None:
    with pytest.raises(ValueError, match="sample 'q' asks for boxes and has no localisation that says which"):
        prompt(Sample("q", (), "Where?", "", "boxes"), "direct")


FACES = FaceCollection("faces_160", side=160, count=6)
WORDS = WordCollection("words_160", side=160, count=6)
NUMBERS = re.compile(r"\d+")
PAIRS = pytest.mark.parametrize(("collection", "other"), [(FACES, WORDS), (WORDS, FACES)], ids=["faces", "words"])


@PAIRS
@pytest.mark.parametrize("task", ["matching", "pointing", "pointing_3x3"])
def test_all_candidates_differ_as_they_are_sent(task: str, collection: Collection, other: Collection) -> None:
    for sample in list(task_dataset(task, collection, other).samples())[:9:4]:
        grid = sample.images[1]
        candidates = [part.load() for part in grid.parts] if isinstance(grid, Collage) else [i.load() for i in sample.images[1:]]
        assert {picture.shape for picture in candidates} == {(160, 160, 3)}
        assert len({picture.tobytes() for picture in candidates}) == len(candidates)
        assert sum(picture.tobytes() == sample.images[0].load().tobytes() for picture in candidates) == 1


@PAIRS
@pytest.mark.cases("task", TASKS)
def test_prompts_do_not_depend_on_who_it_is(task: str, collection: Collection, other: Collection) -> None:
    for mode in PROMPT_MODES:
        texts = {prompt(sample, mode) for sample in task_dataset(task, collection, other).samples()}
        assert len({NUMBERS.sub("#", text) for text in texts}) == 1


@PAIRS
def test_under_a_setting_candidates_still_differ(collection: Collection, other: Collection) -> None:
    sample = task_dataset("matching", collection, other).samples()[0]
    view = ViewMaker(1234).view(sample, Setting.parse("observatory_gaussian_blur"))
    assert len(set(view.digests)) == 5


@PAIRS
def test_boxes_lie_in_the_picture(collection: Collection, other: Collection) -> None:
    for sample in task_dataset("guided", collection, other).samples():
        for left, top, right, bottom in present(sample.localisation).boxes.values():
            assert 0 <= left < right <= 160
            assert 0 <= top < bottom <= 160


@pytest.mark.parametrize(("collection", "other", "most"), [(FACES, WORDS, 0.07), (WORDS, FACES, 0.42)], ids=["faces", "words"])
def test_boxes_that_are_told_cannot_be_copied(collection: Collection, other: Collection, most: float) -> None:
    def copied(task: str, seed: int) -> list[float]:
        abouts = [sample.localisation for sample in task_dataset(task, collection, other, seed=seed).samples()]
        return [overlap(about.given[name], box) for about in abouts if about for name, box in about.boxes.items()]

    assert set(copied("guided_published", 0)) == {1.0}
    assert np.mean([copied("guided", seed) for seed in range(40)]) < most
