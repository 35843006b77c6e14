"""Datasets that the package ``datasets`` reads, on folders that it wrote."""

from __future__ import annotations

import pickle  # noqa: TID251 - only to show that image sources reach worker processes
import re
import textwrap
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.core.errors import DatasetError, ImageError, UsageError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import benchmarks, corpus_metric, dataset_id, resolve, synthetic
from pytest_vlmrobust.datasets.huggingface import HubName, parse

if find_spec("datasets") is None:
    pytest.skip("needs datasets: pip install -e '.[datasets]'", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its own dependencies say when they are imported
    datasets: Any = import_module("datasets")

RED, GREEN = synthetic.picture(0), synthetic.picture(1)
ROW: dict[str, dict[str, Any]] = {
    "AI2D": {"question": "Which?", "options": ["red", "green"], "answer": "1", "image": RED},
    "BLINK": {
        "idx": "val_1", "question": "Which?", "choices": ["red", "green"], "answer": "(B)", "sub_task": "x", "image_1": RED,
        "image_2": GREEN, "image_3": None,
    },
    "MMMU": {"id": "validation_Art_1", "question": "Which?", "options": "['red', 'green']", "answer": "B", "image_1": RED},
    "MMMU-Pro": {
        "id": "test_Art_1", "question": "Which?", "options": str(list("abcdefghij")), "answer": "J", "subject": "Art",
        "image_1": RED, "image_2": GREEN,
    },
    "MMStar": {"index": 0, "question": "Which?\nOptions: A: red, B: green", "answer": "B", "category": "c", "image": RED},
    "RealWorldQA": {
        "question": "Which?\nA. red\nB. green\n"
        "Please answer directly with only the letter of the correct option and nothing else.",
        "answer": "B", "image": RED,
    },
    "ScienceQA": {"question": "Which?", "choices": ["red", "green"], "answer": 1, "hint": "look", "subject": "x", "image": RED},
    "HallusionBench": {
        "category": "VD", "subcategory": "illusion", "visual_input": "1", "set_id": "0", "figure_id": "1", "question_id": "2",
        "question": "Is it?", "gt_answer": "1", "image": RED,
    },
    "MME": {"question_id": "color/1.png", "question": "Is it? Please answer yes or no.", "answer": "Yes", "category": "color",
        "image": RED},
    "POPE": {"question_id": "7", "question": "Is it?", "answer": "yes", "category": "random", "image": RED},
    "ChartQA": {"question": "How many?", "answer": "12", "type": "human_test", "image": RED},
    "TextVQA": {"question_id": 7, "question": "What?", "answers": ["red"] * 10, "image": RED},
    "VizWiz": {"question_id": "7", "question": "What?", "answers": ["red"] * 10, "category": "x", "image": RED},
    "COCO captions": {"question_id": "7", "answer": ["a red square", "a square"], "image": RED},
    "MMBench": {"index": 1000007, "question": "Which?", "hint": "nan", "A": "red", "B": "green", "C": "nan", "answer": "B",
        "category": "x", "image": RED},
    "NaturalBench": {"Index": 0, "Question": "What is it? Option:A:red; B:green;", "Answer": "B",
        "Question_Type": "multiple_choice", "Image": RED},
    "VLMs are Biased": {"prompt": "How many legs?", "ground_truth": "5", "expected_bias": "4", "topic": "Animals", "image": RED},
    "VLMBlind": {"task": "Counting Grid - Blank Grids", "prompt": "Count.", "groundtruth": "3,4", "image": RED},
    "MVI-Bench": {"question": "Which?", "choices": '["cat", "dog"]', "answer": "cat", "category": "mirror", "type": "normal",
        "image": RED},
    "SCAM": {"id": "SCAM_img_0001", "type": "SCAM", "object_label": "ball", "attack_word": "car", "image": RED},
}  # fmt: skip
TARGETS: dict[str, str | tuple[str, ...]] = {
    "TextVQA": ("red",) * 10,
    "VizWiz": ("red",) * 10,
    "COCO captions": ("a red square", "a square"),
    "HallusionBench": "yes",
    "MME": "yes",
    "POPE": "yes",
    "ChartQA": "12",
    "MMMU-Pro": "J",
    "MVI-Bench": "A",
    "VLMs are Biased": "5",
    "VLMBlind": "3,4",
}


def saved(folder: Path, *rows: dict[str, Any]) -> Path:
    columns = {column: [row.get(column) for row in rows] for column in dict.fromkeys(c for row in rows for c in row)}
    table = datasets.Dataset.from_dict(columns)
    for column, values in columns.items():
        if column.lower().startswith(("image", "picture")) and not any(isinstance(value, str) for value in values):
            table = table.cast_column(column, datasets.Image())
    table.save_to_disk(folder)
    return folder


def read(path: Path) -> Sequence[Sample]:
    return resolve(f"hf:{path}").samples()


@pytest.mark.parametrize("name", ROW)
def test_each_layout_of_the_hub_is_read_from_a_saved_folder(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path / name.replace(" captions", ""), ROW[name])
    dataset = resolve(f"hf:{folder}")
    (sample,) = dataset.samples()
    benchmark = benchmarks()[name]
    assert corpus_metric(dataset) == benchmark.metric
    assert sample.target == TARGETS.get(name, "B")
    assert sample.scorer in {kind.scorer for kind in benchmark.kinds}
    assert sample.question == benchmark.question or "Please" not in sample.question
    assert tuple(sample.images[0].load()[36, 48]) == (255, 0, 0)
    assert len(sample.images) == (2 if name in {"BLINK", "MMMU-Pro"} else 1)
    assert set(sample.keys) == set(benchmark.hub[0].keys)


def test_every_hub_layout_was_tried() -> None:
    assert set(ROW) == {name for name, benchmark in benchmarks().items() if benchmark.hub}


def test_a_folder_needs_no_prefix_and_pictures_keep_their_identity(tmp_path: Path) -> None:
    first = resolve(saved(tmp_path / "POPE", ROW["POPE"], {**ROW["POPE"], "question_id": "8"}))
    second = resolve(saved(tmp_path / "again" / "POPE", ROW["POPE"]))
    first_image, second_image = (sample.images[0] for sample in first.samples())
    assert first_image.identity() == second_image.identity() == second.samples()[0].images[0].identity()
    assert first.samples()[0].group == first.samples()[1].group
    assert first.digest != second.digest
    assert resolve(tmp_path / "POPE").digest == first.digest
    assert np.array_equal(pickle.loads(pickle.dumps(first_image)).load(), first_image.load())  # noqa: S301 - made here


def test_ids_of_mmbench_are_clusters_and_its_nan_is_nothing(tmp_path: Path) -> None:
    (sample,) = read(saved(tmp_path / "MMBench", ROW["MMBench"]))
    assert (sample.group, sample.hint, dict(sample.options)) == ("7", "", {"A": "red", "B": "green"})


def test_one_split_of_several(tmp_path: Path) -> None:
    table = datasets.load_from_disk(saved(tmp_path / "one", ROW["POPE"]))
    folder = tmp_path / "POPE"
    datasets.DatasetDict({"test": table, "other": table}).save_to_disk(folder)
    assert len(read(folder)) == 1  # the record says which
    datasets.DatasetDict({"a": table, "b": table}).save_to_disk(tmp_path / "x" / "POPE")
    with pytest.raises(DatasetError, match=r"POPE has several splits: it has a, b\. Name one: hf:.*POPE#a"):
        read(tmp_path / "x" / "POPE")
    assert len(resolve(f"hf:{tmp_path / 'x' / 'POPE'}#b").samples()) == 1
    with pytest.raises(DatasetError, match=r"POPE#c has no split 'c': it has a, b"):
        resolve(f"hf:{tmp_path / 'x' / 'POPE'}#c").samples()


OWN = """
kinds: [{task: choice, scorer: choice}]
hub:
  - columns: {id: "{area}-{row}", question: query, answer: label, options: texts, images: [pictures], group: area}
    answers: position
"""


def test_a_record_of_ones_own_beside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "ours.benchmark.yaml").write_text(OWN)
    row = {"area": "x", "query": "Which?", "texts": ["red", "None"], "label": 1}
    stored = datasets.Dataset.from_list([{**row, "pictures": [{"bytes": RED, "path": None}, {"bytes": GREEN, "path": None}]}])
    stored.cast_column("pictures", datasets.List(datasets.Image())).save_to_disk(tmp_path / "ours")
    (sample,) = read(tmp_path / "ours")
    assert (sample.id, sample.target, dict(sample.options)) == ("x-0", "B", {"A": "red", "B": "None"})
    assert [tuple(image.load()[36, 48]) for image in sample.images] == [(255, 0, 0), (0, 128, 0)]


def test_data_without_a_record_say_which_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no record says which of its columns .* Looked for .*/strange\.benchmark\.yaml, and"):
        resolve(f"hf:{saved(tmp_path / 'strange', ROW['POPE'])}")
    with pytest.raises(
        DatasetError, match=rf"^hf:a/b: no record says .* Looked for {re.escape(str(tmp_path))}/b\.benchmark\.yaml,"
    ):
        resolve("hf:a/b", data_dir=tmp_path)


def test_the_record_that_the_error_shows_reads_such_data(tmp_path: Path) -> None:
    row = {"id": "q1", "question": "Which?", "choices": ["red", "green"], "answer": 1, "image": RED}
    folder = saved(tmp_path / "strange", row)
    with pytest.raises(DatasetError) as caught:
        resolve(f"hf:{folder}")
    shown, record = str(caught.value).split("on the right:\n")
    assert shown.endswith(f"Write {tmp_path / 'strange.benchmark.yaml'}, with the names of its columns ")
    (tmp_path / "strange.benchmark.yaml").write_text(textwrap.dedent(record))
    (sample,) = read(tmp_path / "strange")
    assert (sample.id, sample.target, dict(sample.options)) == ("q1", "B", {"A": "red", "B": "green"})


def test_malformed_rows_name_row_column_value_and_what_was_expected(tmp_path: Path) -> None:
    rows = [ROW["AI2D"], {**ROW["AI2D"], "answer": "4"}, {**ROW["AI2D"], "options": ["x"], "answer": "0"}]
    with pytest.raises(DatasetError) as caught:
        read(saved(tmp_path / "AI2D", *rows))
    text = str(caught.value)
    assert "has 2 problems when read as the benchmark 'AI2D'" in text
    assert "AI2D:2, row 1, column 'answer': found '4', expected the position of an option, from 0 to 1" in text
    assert "AI2D:3, row 2, column 'options': found {'A': 'x'}, expected two options or more" in text


def test_an_absent_column(tmp_path: Path) -> None:
    row = {**ROW["POPE"], "anser": "yes"}
    del row["answer"]
    with pytest.raises(
        DatasetError, match=r"has no column 'answer', which the benchmark 'POPE' needs \(answer\)\. Did you mean 'anser'"
    ):
        read(saved(tmp_path / "POPE", row))


def test_broken_pictures_are_errors_when_loaded_and_absent_ones_are_left_out(tmp_path: Path) -> None:
    rows = [{**ROW["POPE"], "question_id": "1", "image": RED[:50]}, {**ROW["POPE"], "question_id": "2", "image": None}]
    with pytest.warns(UserWarning, match=r"1 row has no image and is left out \(the first: .*POPE:2, row 1\)"):
        (sample,) = read(saved(tmp_path / "POPE", *rows))
    with pytest.raises(ImageError, match=r"POPE:1, row 0, column 'image': 50 bytes starting 89504e47.* cannot be decoded"):
        sample.images[0].load()


def test_data_that_are_absent_are_an_error_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError) as caught:
        resolve("hf:lmms-lab/POPE").samples()
    text = str(caught.value)
    assert text.startswith("hf:lmms-lab/POPE#test could not be loaded (HF_HUB_OFFLINE is set: nothing was asked of the hub). ")
    assert "for 'lmms-lab/POPE' on the Hugging Face hub, and in its cache " in text


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("hf:a/b", HubName("a/b")),
        ("hf:a/b:c d (2)", HubName("a/b", "c d (2)")),
        ("hf:a/b@v1", HubName("a/b", "", "v1")),
        ("hf:a/b#test", HubName("a/b", "", "", "test")),
        ("hf:a/b:c@v1#test[:10%]", HubName("a/b", "c", "v1", "test[:10%]")),
    ],
)
def test_names(typed: str, name: HubName) -> None:
    assert parse(typed) == name
    assert str(name) == typed


@pytest.mark.parametrize("typed", ["hf:", "hf:#test", "hf::c"])
def test_what_is_no_name(typed: str) -> None:
    with pytest.raises(UsageError, match=r"names no dataset of the hub: expected hf:ID\[:config\]\[@revision\]\[#split\]"):
        resolve(typed)


def test_ids_in_test_names() -> None:
    assert dataset_id("hf:MMMU/MMMU_Pro:standard (10 options)#test") == "MMMU_Pro-standard-10-options-test"
