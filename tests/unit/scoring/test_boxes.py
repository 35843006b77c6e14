"""From boxes in a text to a score: overlap with the truth, 0 for what was not given, NaN for what was not answered."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import Box, Localisation, box_space
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score
from pytest_vlmrobust.scoring import box_coverage, box_scores, read_boxes, score

SIZE = (200, 100)
TRUTH: dict[str, Box] = {"left_eye": (10, 20, 30, 40), "right_eye": (110, 20, 130, 40), "nose": (60, 40, 80, 60)}
FAILED = Prediction("", "generate", "error", error="out of memory")


def asking(convention: str = "", boxes: dict[str, Box] | None = None) -> Sample:
    space = box_space(convention, SIZE) if convention else None
    return Sample("1", (), "?", "", "boxes", localisation=Localisation(SIZE, TRUTH if boxes is None else boxes, space=space))


def said(text: str | Mapping[str, object], **more: str) -> Prediction:
    return Prediction(text if isinstance(text, str) else json.dumps(text), "generate", **more)  # type: ignore[arg-type]  # text


def test_all_boxes_right() -> None:
    found = score(asking(), said(TRUTH))
    assert (found.value, found.rule, found.state) == (1.0, "by_attribute", "scored")
    assert json.loads(found.answer or "") == {name: list(box) for name, box in TRUTH.items()}


def test_what_is_not_given_counts_as_nothing() -> None:
    assert score(asking(), said({"nose": [60, 40, 80, 60]})).value == pytest.approx(1 / 3)
    assert score(asking(), said({"nose": [60, 40, 80, 60], "left_eye": None})).value == pytest.approx(1 / 3)
    half = {"nose": [60, 40, 80, 60], "left_eye": [10, 20, 30, 60]}
    assert score(asking(), said(half)).value == pytest.approx(1.5 / 3)


def test_nothing_found_is_an_answer_and_no_answer_is_none() -> None:
    assert score(asking(), said("[]")) == Score(0.0, "none_found", '{"left_eye":null,"right_eye":null,"nose":null}')
    assert score(asking(), said("I see no boxes")) == Score.unparsed("none")
    assert score(asking(), said('{"nose": [60, 40')) == Score.unparsed("truncated")
    assert score(asking(), said("The nose is in the", finish_reason="length")) == Score.unparsed("truncated")
    failed = score(asking(), FAILED)
    assert math.isnan(failed.value)
    assert failed.state == "error"


def test_eyes_may_be_swapped_where_both_are_given() -> None:
    swapped = {"left_eye": TRUTH["right_eye"], "right_eye": TRUTH["left_eye"]}
    assert score(asking(), said(swapped)).value == pytest.approx(2 / 3)
    assert score(asking(), said({"left_eye": TRUTH["right_eye"]})).value == 0.0
    assert box_scores(asking(), said(swapped)).overlaps == {"left_eye": 1.0, "right_eye": 1.0, "nose": 0.0}
    assert read_boxes(asking(), said(swapped)) == {**swapped, "nose": None}  # by the names that the model gave
    one = asking(boxes={"left_eye": TRUTH["left_eye"], "nose": TRUTH["nose"]})
    assert score(one, said(swapped)).value == 0.0


def test_a_box_turned_inside_out_covers_nothing() -> None:
    found = score(asking(), said({"nose": [80, 60, 60, 40]}))
    assert found.value == 0.0
    assert json.loads(found.answer or "")["nose"] == [80, 60, 60, 40]
    assert box_scores(asking(), said({"nose": [80, 60, 60, 40]})).coverage == pytest.approx(1 / 3)


@pytest.mark.parametrize("convention", ["pixels", "thousandths", "fractions", "thousandths_yx", "pixels_yx"])
def test_boxes_are_read_in_the_space_that_the_model_speaks(convention: str) -> None:
    sample = asking(convention)
    assert sample.localisation is not None
    space = sample.localisation.spoken
    lists = {name: space.write(box, SIZE) for name, box in TRUTH.items()}
    assert score(sample, said(lists)).value == pytest.approx(1.0)
    names = ("x1", "y1", "x2", "y2") if space.order == "xy" else ("y1", "x1", "y2", "x2")
    mappings = {name: dict(zip(names, box, strict=True)) for name, box in lists.items()}
    assert score(sample, said(mappings)).value == pytest.approx(1.0)
    assert score(sample, said('{"nose": ["30%", "40%", "40%", "60%"]}')).value == (
        pytest.approx(1 / 3) if space.order == "xy" else 0.0
    )


def test_the_answer_is_in_pixels_to_a_tenth() -> None:
    found = score(asking("thousandths"), said({"nose": [300.4, 400, 401, 600]}))
    assert json.loads(found.answer or "") == {"left_eye": None, "right_eye": None, "nose": [60.1, 40, 80.2, 60]}


def test_scores_by_attribute() -> None:
    half = box_scores(asking(), said({"nose": [60, 40, 80, 50], "mouth": [1, 2, 3, 4]}))
    assert half.overlaps == {"left_eye": 0.0, "right_eye": 0.0, "nose": 0.5}
    assert half.coverage == pytest.approx(1 / 3)
    assert box_scores(asking(), said("?")) == (dict.fromkeys(TRUTH, 0.0), 0.0)
    failed = box_scores(asking(), FAILED)
    assert all(map(math.isnan, [failed.coverage, *failed.overlaps.values()]))
    assert read_boxes(asking(), said("?")) is read_boxes(asking(), FAILED) is None


def test_coverage_of_several() -> None:
    answers = [said(TRUTH), said("[]"), said("?"), FAILED]
    assert box_coverage([asking()] * 4, answers) == pytest.approx([1.0, 0.0, 0.0, math.nan], nan_ok=True)
    with pytest.raises(ValueError, match="zip"):
        box_coverage([asking()], answers)


def test_a_sample_that_asks_for_no_boxes() -> None:
    message = r"sample '1' has no boxes to be found; expected a localisation with at least one true box"
    for sample in (Sample("1", (), "?", "", "boxes"), asking(boxes={})):
        with pytest.raises(UsageError, match=message):
            score(sample, said("[]"))


@pytest.mark.parametrize("box", [(1, 1, 1, 4), (4, 1, 1, 4), (1, 1, math.inf, 4), (1, math.nan, 3, 4)])
def test_a_true_box_without_an_area(box: Box) -> None:
    with pytest.raises(UsageError, match=r"sample '1': the true box of 'nose' is \(.*\); expected finite"):
        score(asking(boxes={"nose": box}), said("[]"))


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["N"])), convention=st.sampled_from(["", "fractions", "thousandths_yx"]))
def test_a_text_without_numbers_earns_nothing(text: str, convention: str) -> None:
    assert score(asking(convention), said(text)).value == 0.0


@settings(max_examples=200, deadline=None)
@given(
    boxes=st.dictionaries(st.sampled_from([*TRUTH, "chin"]), st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=5), max_size=4)
)
def test_a_value_is_a_share(boxes: dict[str, list[float]]) -> None:
    found = score(asking(), said(boxes))
    assert type(found.value) is float
    assert 0 <= found.value <= 1
    assert (found.answer is None) is (found.state == "unparsed")
    each = box_scores(asking(), said(boxes))
    assert found.value == pytest.approx(sum(each.overlaps.values()) / len(TRUTH))
