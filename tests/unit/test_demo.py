"""The embedded datasets: answers are right, distractors come from the picture, and nothing asked was trained on."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.core.sample import Sample, text_of_height
from pytest_vlmrobust.demo import scenes, shapes, words
from pytest_vlmrobust.demo.cues import Cues
from pytest_vlmrobust.demo.shapes import SceneImage, Shapes
from pytest_vlmrobust.demo.words import PageImage, Words


@pytest.fixture(scope="module", params=[Shapes(), Words()], ids=lambda dataset: dataset.name)
def samples(request: pytest.FixtureRequest) -> tuple[Sample, ...]:
    return tuple(request.param.samples())


def test_ids_are_unique_and_several_questions_share_a_picture(samples: tuple[Sample, ...]) -> None:
    assert len({sample.id for sample in samples}) == len(samples)
    assert max(Counter(sample.group for sample in samples).values()) > 1


def test_every_question_has_its_answer_among_different_options(samples: tuple[Sample, ...]) -> None:
    for sample in samples:
        if sample.task == "choice":
            assert sample.target in sample.options
            assert len(set(sample.options.values())) == len(sample.options) == 4
            assert all(sample.options.values())
        else:
            assert sample.target in ("yes", "no")


def test_answers_are_spread_over_the_letters(samples: tuple[Sample, ...]) -> None:
    letters = Counter(str(sample.target) for sample in samples if sample.task == "choice")
    assert max(letters.values()) < 0.4 * letters.total()


def test_every_picture_belongs_to_the_split_that_training_refuses(samples: tuple[Sample, ...]) -> None:
    for sample in samples:
        (source,) = sample.images
        content = source.scene if isinstance(source, SceneImage) else source.page if isinstance(source, PageImage) else None
        assert content is not None
        assert content.held_out


def test_the_training_split_holds_no_content_of_the_evaluation_split() -> None:
    trained = {scene.signature for scene in islice(scenes.scenes(np.random.default_rng(1), evaluation=False), 1500)}
    evaluated = {scene.signature for scene in islice(scenes.scenes(np.random.default_rng(1), evaluation=True), 500)}
    assert not trained & evaluated
    read = {page.signature for page in islice(words.pages(np.random.default_rng(1), evaluation=False), 500)}
    assert not read & {page.signature for page in islice(words.pages(np.random.default_rng(1), evaluation=True), 250)}


def test_the_same_samples_in_every_process(samples: tuple[Sample, ...]) -> None:
    fresh = Shapes() if samples[0].id.startswith("shapes") else Words()
    assert [repr(sample) for sample in fresh.samples()] == [repr(sample) for sample in samples]
    again = samples[3].images[0].load()
    assert hashlib.sha256(again.tobytes()).digest() == hashlib.sha256(samples[3].images[0].load().tobytes()).digest()
    assert again.shape == (scenes.CANVAS, scenes.CANVAS, 3)
    assert again.dtype == np.uint8


def test_in_full_scenes_all_distractors_are_in_the_picture() -> None:
    rng = rng_for(7, "distractors")
    seen = 0
    for scene in islice(scenes.scenes(rng, evaluation=True), 400):
        question = shapes.KINDS["color_of"](rng, scene)
        if question is None or len({figure.color for figure in scene.figures}) < 4:
            continue
        seen += 1
        assert set(question.options) == {figure.color for figure in scene.figures}
    assert seen > 50


@pytest.fixture(scope="module")
def shown() -> tuple[scenes.Scene, ...]:
    return tuple(islice(scenes.scenes(rng_for(3, "shown"), evaluation=True), 300))


@pytest.mark.parametrize("kind", sorted(shapes.KINDS))
def test_answers_are_facts_of_the_scene(kind: str, shown: tuple[scenes.Scene, ...]) -> None:
    rng = rng_for(3, kind)
    questions = [question for scene in shown if (question := shapes.KINDS[kind](rng, scene)) is not None]
    assert len(questions) > 40
    assert all(question.answer in (question.options or ("yes", "no")) for question in questions)
    assert len({question.answer for question in questions}) > 1


def test_yes_and_no_are_about_as_frequent() -> None:
    rng = rng_for(5, "existence")
    questions = [shapes.KINDS["existence"](rng, scene) for scene in islice(scenes.scenes(rng, evaluation=True), 600)]
    share = np.mean([question.answer == "yes" for question in questions if question])
    assert 0.42 < share < 0.58


def test_a_mirror_changes_the_answers_that_are_marked_and_no_others() -> None:
    marked = {sample.id: sample.changed_by for sample in Shapes().samples()}
    where = [changed for name, changed in marked.items() if name.endswith("-where")]
    counts = [changed for name, changed in marked.items() if name.endswith("-count")]
    assert all({"left_right", "up_down"} <= changed for changed in where)
    assert not any({"left_right", "up_down"} & changed for changed in counts)


def test_questions_of_existence_depend_on_presence_and_colour_and_no_others_on_presence() -> None:
    marked = {sample.id: sample.changed_by for sample in Shapes(kinds=tuple(shapes.KINDS)).samples()}
    for name, changed in marked.items():
        assert ("presence" in changed) is name.endswith("-existence"), name
        assert "colour" in changed or not name.endswith("-existence")


def test_numbers_depend_on_colour_where_a_figure_that_counts_is_as_bright_as_the_ground() -> None:
    """The reference is what `grayscale` leaves of each figure; where it leaves 9 to 18 levels, either may be said."""
    grey, said = perturbations.get("grayscale"), set[bool]()
    for sample in Shapes(kinds=("count",), per_kind=150).samples():
        image = sample.images[0]
        assert isinstance(image, shapes.SceneImage)
        named = sample.question.removeprefix("How many ").removesuffix(" are there?")
        if named.endswith(" shapes"):  # of one colour: about colour anyway
            assert "colour" in sample.changed_by
            continue
        left = []
        for figure in image.scene.figures:
            others = tuple(other for other in image.scene.figures if other is not figure)
            alone = scenes.draw(replace(image.scene, figures=others))
            step = int(np.abs(grey(scenes.draw(image.scene), seed=0).astype(int) - grey(alone, seed=0)).max())
            left += [step] if named in ("shapes", shapes.plural(figure.shape)) else []
        if min(left) <= 8 or min(left) > 18:
            assert ("colour" in sample.changed_by) is (min(left) <= 8), sample.id
            said.add(min(left) <= 8)
    assert said == {True, False}


def test_questions_of_words_say_what_they_depend_on_and_how_high_its_letters_are() -> None:
    for sample in Words().samples():
        image = sample.images[0]
        assert isinstance(image, PageImage)
        kind = sample.id.rpartition("-")[2]
        place = {"up_down"} if " at the " in sample.question else set()
        read = {text_of_height(lettering.letter_height) for lettering in asked_about(sample, image.page)}
        also = {"read": set(), "ink": {"colour"}, "spelled": {"presence"}}[kind]
        assert sample.changed_by == place | read | also, sample.id
    heights = {tag for sample in Words().samples() for tag in sample.changed_by if tag.startswith("text")}
    assert heights == {"text_18", "text_24"}


def asked_about(sample: Sample, page: words.Page) -> list[words.Lettering]:
    """Returns the words that must be read to answer."""
    if sample.id.endswith("-spelled"):
        return list(page.letterings)
    if sample.id.endswith("-read"):
        return [lettering for lettering in page.letterings if lettering.word == sample.options[str(sample.target)]]
    return [lettering for lettering in page.letterings if f"the word {lettering.word}?" in sample.question]


def test_letters_are_as_high_as_they_say() -> None:
    for page in islice(words.pages(np.random.default_rng(4), evaluation=True), 40):
        for written in page.letterings:
            letter = "H" if written.case == "upper" else "x"
            _, top, _, bottom = words._extent(letter, written.size)
            assert bottom - top == pytest.approx(written.letter_height, abs=2)  # drawn in whole pixels


def test_questions_across_patches_depend_on_large_letters() -> None:
    assert {sample.changed_by for sample in Cues("global_cue").samples()} <= {frozenset({"text_18"}), frozenset({"text_24"})}


def test_a_drawn_mirror_is_the_mirrored_drawing() -> None:
    scene = next(scenes.scenes(np.random.default_rng(2), evaluation=True))
    flat = scenes.Scene(scene.figures, scene.background, (0, 0))
    drawn = scenes.draw(scenes.mirror_scene(flat, horizontally=True)).astype(int)
    difference = np.abs(drawn - scenes.draw(flat)[:, ::-1].astype(int))
    assert np.mean(difference > 40) < 0.03


def test_boxes_of_words_are_exact() -> None:
    for page in islice(words.pages(np.random.default_rng(4), evaluation=True), 40):
        picture = words.draw_page(page).astype(int)
        for written in page.letterings:
            alone = words.draw_page(words.Page((), page.background)).astype(int)
            x1, y1, x2, y2 = written.box
            inked = np.abs(picture - alone).sum(2) > 30
            rows, columns = np.nonzero(inked[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2])
            assert rows.size
            assert 0 <= rows.min() <= 4
            assert columns.max() + max(0, x1 - 2) <= x2


def test_words_stay_inside_the_frame() -> None:
    for page in islice(words.pages(np.random.default_rng(9), evaluation=False), 300):
        for written in page.letterings:
            x1, y1, x2, y2 = written.box
            assert 3 <= x1 < x2 <= scenes.CANVAS - 3
            assert 3 <= y1 < y2 <= scenes.CANVAS - 3
