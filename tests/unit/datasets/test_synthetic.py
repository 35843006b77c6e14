"""A file in the layout of each benchmark is read back as the record says: ids, options, targets, groups, keys, scorers."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import Dataset, benchmark_of, benchmarks, corpus_metric, resolve, synthetic
from pytest_vlmrobust.datasets.sampling import chosen

FIVE = ("A green circle.", "One green circle.", "There is a green circle.", "It shows a green circle.", "Some green circle.")
TEN = ("green",) * 7 + ("unanswerable",) * 3
GREEN = {"question": "Which colour is the shape?", "hint": "", "images": 1, "keys": {}, "instruction": ""}


@dataclass(frozen=True)
class Expected:
    """What is read from a synthetic file: how many samples, and one of them."""

    count: int
    id: str
    target: Any
    task: str
    scorer: str
    chance: float
    metric: str = "accuracy"
    options: str = ""
    category: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def choice(count: int, of: str, target: str, **more: Any) -> Expected:
    return Expected(count, more.pop("id", "5"), target, "choice", "choice", 1 / len(of.split()), options=of, **more)


def yes_no(**more: Any) -> Expected:
    content = {"question": "Is the shape green?", **more.pop("more", {})}
    return Expected(8, more.pop("id", "5"), "yes", "yes_no", "yes_no", 0.5, more=content, **more)


def opened(scorer: str, target: Any, **more: Any) -> Expected:
    return Expected(8, "5", target, "open", scorer, 0.0, **more)


FOUR = "blue yellow red green"
PLACE = {"images": 2, "question": "Which colour is the shape in <image 1>?"}
CAPTION = 'Directly provide the description, do not include prefix like "This image depicts".'
UNANSWERABLE = (
    'When the picture does not show enough to answer, say "unanswerable". Answer the question using a single word or phrase.'
)
EXPECTED = {
    "AI2D": choice(8, FOUR, "D"),
    "BLINK": choice(2, "red green", "B", id="1", category="Relative_Reflectance", more=PLACE),
    "MMMU": Expected(7, "validation_Art_5", "green", "open", "open", 0.0, category="Art", more=PLACE),
    "MMMU-Pro": choice(
        8, "blue yellow black white orange purple brown pink red green", "J", category="Art", more={**PLACE, "images": 3}
    ),
    "MMStar": choice(8, FOUR, "D", category="coarse perception"),
    "RealWorldQA": choice(3, "green blue red", "B", id="2"),
    "ScienceQA": choice(7, FOUR, "D", category="physics", more={"hint": "Light is a wave."}),
    "AMBER": yes_no(category="attribute", metric="category_accuracy"),
    "HallusionBench": yes_no(
        id="VD_illusion_1_0_2_1",
        category="illusion",
        metric="hallusion_bench",
        more={"keys": {"figure": "VD_illusion_0_2", "question": "VD_illusion_0_1"}},
    ),
    "MME": yes_no(category="color", metric="mme", more={"question": "Is there a shape?"}),
    "POPE": yes_no(category="adversarial", metric="pope_f1"),
    "ChartQA": opened("relaxed", "50", category="test_human", more={"question": "What is the value?"}),
    "GQA": opened("exact", "green"),
    "TextVQA": opened("vqa_soft", TEN),
    "VizWiz": opened("vqa_soft", TEN, more={"instruction": UNANSWERABLE}),
    "COCO captions": opened(
        "rouge_l", FIVE, metric="cider", more={"question": "Please describe this image in general.", "instruction": CAPTION}
    ),
    "MMBench": choice(12, "blue yellow red green", "D", id="2000001", category="colour", metric="circular"),
    "Res-Bench": choice(
        3,
        "red green blue yellow",
        "A",
        id="11",
        category="perception",
        metric="category_accuracy",
        more={"keys": {"resolution": "1344", "category": "perception", "sub_task": "IS"}},
    ),
}


def opened_file(path: Path) -> tuple[Dataset, Sequence[Sample]]:
    dataset = resolve(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows left out on purpose; test_what_is_left_out_is_said
        return dataset, dataset.samples()


def test_every_layout_is_that_of_a_benchmark_and_has_an_expectation() -> None:
    assert list(EXPECTED) == list(synthetic.layouts())
    assert set(EXPECTED) <= set(benchmarks())


@pytest.mark.parametrize("apart", [False, True], ids=["pictures inside", "pictures apart"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_each_layout_is_read_back(tmp_path: Path, name: str, apart: bool) -> None:
    expected = EXPECTED[name]
    path = synthetic.write(name, tmp_path, pictures_apart=apart)
    assert benchmark_of(path.stem) is benchmarks()[name]
    dataset, samples = opened_file(path)
    assert (corpus_metric(dataset), len(samples)) == (expected.metric, expected.count)
    (sample,) = [sample for sample in samples if sample.id == expected.id]
    assert (sample.task, sample.scorer, sample.target) == (expected.task, expected.scorer, expected.target)
    assert list(sample.options.values()) == expected.options.split()
    assert (sample.category, sample.chance) == (expected.category, expected.chance)
    said = {key: getattr(sample, key) for key in ("question", "hint", "instruction")}
    if name == "MME":
        assert sample.keys["image"].startswith("color_")
        expected.more["keys"] = sample.keys
    assert {**said, "images": len(sample.images), "keys": dict(sample.keys)} == {**GREEN, **expected.more}


@pytest.mark.parametrize("name", EXPECTED)
def test_its_pictures_are_those_that_were_drawn(tmp_path: Path, name: str) -> None:
    for apart in (False, True):
        _, samples = opened_file(synthetic.write(name, tmp_path, pictures_apart=apart))
        for sample in samples:
            for image in sample.images:
                pixels = image.load()
                height, width = pixels.shape[:2]
                centre = pixels[height // 2, width // 2]
                assert not np.array_equal(centre, pixels[0, 0])


def test_copies_of_a_circular_question_are_one_group(tmp_path: Path) -> None:
    _, samples = opened_file(synthetic.write("MMBench", tmp_path))
    groups = {sample.id: sample.group for sample in samples}
    assert groups["1"] == groups["1000001"] == groups["3000001"] == "1"
    assert len(set(groups.values())) == 3
    assert {sample.options[str(sample.target)] for sample in samples if sample.group == "1"} == {"green"}


def test_the_two_questions_of_mme_share_a_key_and_a_group(tmp_path: Path) -> None:
    _, samples = opened_file(synthetic.write("MME", tmp_path))
    keys = [sample.keys["image"] for sample in samples]
    assert keys[::2] == keys[1::2]
    assert len(set(keys)) == len({sample.group for sample in samples}) == 4


def test_sizes_of_one_question_are_one_sample(tmp_path: Path) -> None:
    _, samples = opened_file(synthetic.write("Res-Bench", tmp_path))
    assert len({sample.group for sample in samples}) == len(samples) == 3
    assert {(sample.task, sample.scorer) for sample in samples} == {
        ("choice", "choice"), ("open", "ocr_recall"), ("open", "numeric_contained"),
    }  # fmt: skip
    for sample in samples:
        assert {size: max(image.load().shape) for size, (image,) in sample.sizes.items()} == {
            size: size for size in synthetic.RUNGS
        }
        assert sample.images == sample.sizes[1344]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MMMU", r"1 row is left out: its 'split' is 'dev' \(few-shot examples; the score that is published is that of vali"),
        ("ScienceQA", r"1 row has no image and is left out \(the first: .*ScienceQA_VAL\.tsv:5, row index '3'\)"),
        ("HallusionBench", r"1 row has no image and is left out \(the first: .*row index 'VS_chart_0_1_0_0'\)"),
    ],
)
def test_what_is_left_out_is_said(tmp_path: Path, name: str, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        resolve(synthetic.write(name, tmp_path)).samples()


def test_an_unknown_layout(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"unknown layout 'POEP'\. Did you mean 'POPE'\?"):
        synthetic.write("POEP", tmp_path)


@pytest.mark.parametrize(("name", "members"), [("MMBench", 4), ("MME", 2)])
def test_what_counts_together_is_sampled_together(tmp_path: Path, name: str, members: int) -> None:
    dataset, samples = opened_file(synthetic.write(name, tmp_path))
    taken = chosen(dataset, "1")
    assert (len(taken), len(taken) < len(samples)) == (members, True)
    assert len({sample.keys.get("image") or sample.group for sample in taken}) == 1
