"""The records of benchmarks: which file is whose, how a record reads a row, and what is said when one does not fit."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import (
    BENCHMARKS,
    Benchmark,
    Kind,
    Layout,
    benchmark_of,
    benchmarks,
    corpus_metric,
    register_benchmark,
    resolve,
    synthetic,
)
from pytest_vlmrobust.datasets.benchmarks import SHIPPED, read_benchmark, read_benchmarks

PICTURE = Path("one.png")


@pytest.fixture(autouse=True)
def _picture(tmp_path: Path) -> None:
    (tmp_path / PICTURE).write_bytes(synthetic.picture(0))


@pytest.fixture
def mine() -> Iterator[Benchmark]:
    kinds = (Kind("open", "exact"),)
    yield register_benchmark(Benchmark("mine", files=("POPE_MINE",), kinds=kinds, metric="cider"))
    BENCHMARKS._things.pop("mine")


def read(tmp_path: Path, name: str, *rows: Mapping[str, str]) -> Sequence[Sample]:
    columns = [*dict.fromkeys(column for row in rows for column in row), "image_path"]
    lines = ["\t".join({**row, "image_path": str(PICTURE)}.get(column, "") for column in columns) for row in rows]
    path = tmp_path / f"{name}.tsv"
    path.write_text("\n".join(["\t".join(columns), *lines, ""]), encoding="utf-8")
    return resolve(path).samples()


def problem(tmp_path: Path, name: str, *rows: Mapping[str, str]) -> str:
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, name, *rows)
    return str(caught.value).replace(str(tmp_path), "DIR")


def row(**cells: str) -> dict[str, str]:
    return {"index": "1", "question": "Is it?", "answer": "Yes", **cells}


@pytest.mark.cases(
    ("file", "name"),
    [
        ("AI2D_TEST", "AI2D"), ("ai2d_test_no_mask_local", "AI2D"), ("BLINK", "BLINK"), ("MMMU_DEV_VAL", "MMMU"),
        ("MMMU_Pro_10c", "MMMU-Pro"), ("MMStar", "MMStar"), ("RealWorldQA", "RealWorldQA"), ("ScienceQA_TEST", "ScienceQA"),
        ("AMBER", "AMBER"), ("HallusionBench", "HallusionBench"), ("MME", "MME"), ("POPE", "POPE"), ("ChartQA_TEST", "ChartQA"),
        ("GQA_TestDev_Balanced", "GQA"), ("TextVQA_VAL", "TextVQA"), ("VizWiz", "VizWiz"), ("COCO_VAL", "COCO captions"),
        ("MMBench_TEST_CN_V11", "MMBench"), ("BLINK_circular", "Circular variants"), ("DocVQA_VAL", "DocVQA"),
        ("OCRBench", "OCRBench"), ("MathVista_MINI", "MathVista"), ("RefCOCO", "RefCOCO"),
        ("MMMU_Pro_V", "Other benchmarks of VLMEvalKit"),
        ("ResBench", "Res-Bench"), ("Res-Bench", "Res-Bench"),
    ],
)  # fmt: skip
def test_files_are_recognised_by_name(file: str, name: str) -> None:
    benchmark = benchmark_of(file)
    assert benchmark is not None
    assert benchmark.name == name


@pytest.mark.parametrize("name", ["shapes", "MME-RealWorlds", "MMMUX", "DocVQA_TRAIN", ""])
def test_other_files_are_not(name: str) -> None:
    assert benchmark_of(name) is None


def test_shipped_records_are_whole() -> None:
    for benchmark in read_benchmarks(SHIPPED).values():
        assert benchmark.about
        assert benchmark.chance
        assert benchmark.file_names
        assert all(layout.ids for layout in benchmark.hub)
    assert benchmarks()["Res-Bench"].chance == "1 / options or 0"


@pytest.mark.usefixtures("mine")
def test_a_registered_record_comes_before_the_shipped_ones(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, "POPE_mine", row(answer="a zebra"))
    assert (sample.task, sample.scorer, sample.target) == ("open", "exact", "a zebra")
    assert corpus_metric(resolve(tmp_path / "POPE_mine.tsv")) == "cider"


def test_a_shipped_record_is_replaced_on_purpose_only() -> None:
    with pytest.raises(UsageError, match=r"^benchmark 'POPE' is shipped\. Choose another name, or pass replace=True"):
        register_benchmark(Benchmark("POPE"))
    register_benchmark(Benchmark("POPE", files=("POPE",), kinds=(Kind("open", "exact"),)), replace=True)
    try:
        benchmark = benchmark_of("POPE")
        assert benchmark is not None
        assert benchmark.kinds[0].scorer == "exact"
    finally:
        BENCHMARKS._things.pop("POPE")


def test_a_file_that_does_not_fit_its_name_says_whose_record_was_used(tmp_path: Path) -> None:
    text = problem(tmp_path, "POPE", row(), row(index="2", answer="maybe"))
    assert text.startswith("DIR/POPE.tsv has 1 problem when read as the benchmark 'POPE'; fix or remove these rows:")
    assert "DIR/POPE.tsv:3, row index '2', column 'answer': found 'maybe', expected Yes or No" in text


@pytest.mark.parametrize(
    ("name", "cells", "said"),
    [
        ("MMStar", row(), "column 'options': found {}, expected two options or more"),
        ("MMStar", row(A="one", answer="A"), "column 'options': found {'A': 'one'}, expected two options or more"),
        ("MMStar", row(A="one", B="two", answer="C"), "column 'answer': found 'C', expected one of A, B"),
        (
            "TextVQA_VAL",
            row(answer="['a', 'b'"),
            "column 'answer': found \"['a', 'b'\", expected an answer, or a list of accepted",
        ),
        ("TextVQA_VAL", row(answer="[]"), "column 'answer': found '[]', expected an answer, or a list of accepted answers"),
        (
            "HallusionBench",
            row(index="VD_1"),
            "row index 'VD_1', column 'index': found 'VD_1', expected a text of the form (?P<kin",
        ),
    ],
)
def test_malformed_rows_name_line_column_value_and_what_was_expected(
    tmp_path: Path, name: str, cells: dict[str, str], said: str
) -> None:
    text = problem(tmp_path, name, cells)
    assert f"DIR/{name}.tsv:2, row index" in text
    assert said in text


def test_a_kind_of_question_that_no_record_knows(tmp_path: Path) -> None:
    cells = {"resolution": "112", "l1-category": "OCR", "l2-category": "KIE", "question_type": "essay"}
    assert "column 'question_type': found 'essay', expected one of MCQ, VQA, mathQA" in problem(
        tmp_path, "ResBench", row(**cells)
    )


def test_a_choice_whose_options_stand_nowhere_is_asked_openly_and_said(tmp_path: Path) -> None:
    cells = {"resolution": "112", "l1-category": "x", "l2-category": "y", "question_type": "MCQ", "answer": "B"}
    with pytest.warns(UserWarning, match="1 choices have no options in the data; they are open questions, scored by 'exac"):
        (sample,) = read(tmp_path, "ResBench", row(**cells))
    assert (sample.task, sample.scorer, sample.chance, sample.target) == ("open", "exact", 0.0, "B")


def test_an_absent_column_is_named_with_what_needs_it(tmp_path: Path) -> None:
    text = problem(tmp_path, "ResBench", row(question_typ="MCQ", resolution="112"))
    expected = "has no column 'question_type', which the benchmark 'Res-Bench' needs (kind). Did you mean 'question_typ'?"
    assert text.startswith(f"DIR/ResBench.tsv:1 {expected}")
    text = problem(tmp_path, "VizWiz", {"index": "1", "question": "What?"})
    assert "VizWiz.tsv:1 has no column 'answers', which the benchmark 'VizWiz' needs (answer). Found: index, question" in text


def test_ends_of_questions_that_the_instruction_repeats_are_cut(tmp_path: Path) -> None:
    samples = read(tmp_path, "POPE", row(question="Is it? Please answer yes or no.  "), row(index="2", question="Is it so?"))
    assert [sample.question for sample in samples] == ["Is it?", "Is it so?"]


OWN = """
about: questions of our own
kinds:
  - {when: mcq, task: choice, scorer: choice}
  - {when: short, task: open, scorer: anls, instruction: Be brief.}
metric: pope_f1
tsv:
  columns: {id: number, question: query, answer: label, category: [topic, "{area}-x"], kind: type, group: "{area}"}
  parts: {number: "(?P<area>[a-z]+)[0-9]+"}
  keys: {figure: "{area}/{topic}"}
  drop: {topic: {junk: not ours}}
"""


def test_a_renamed_benchmark_is_not_measured_by_accuracy_in_silence(tmp_path: Path) -> None:
    said = (
        "our-mme-v2.tsv is read as a plain table and measured by accuracy, though its name contains the benchmark MME. If it is"
    )
    with pytest.warns(UserWarning, match=said):
        read(tmp_path, "our-mme-v2", row())
    read(tmp_path, "mmeasures", row())  # pytest makes a warning an error


def test_a_record_of_ones_own_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "ours.benchmark.yaml").write_text(OWN)
    rows = [
        {"number": "a1", "query": "Which?", "A": "x", "B": "y", "label": "B", "type": "mcq", "topic": "t"},
        {"number": "a2", "query": "What?", "label": "['u', 'v']", "type": "short"},
        {"number": "b3", "query": "What?", "label": "w", "type": "short", "topic": "junk"},
    ]
    with pytest.warns(UserWarning, match="1 row is left out: its 'topic' is 'junk' \\(not ours\\)"):
        first, second = read(tmp_path, "ours", *rows)
    assert (first.id, first.task, first.target, first.category, dict(first.keys)) == ("a1", "choice", "B", "t", {"figure": "a/t"})
    assert (second.scorer, second.target, second.category, second.instruction) == ("anls", ("u", "v"), "a-x", "Be brief.")
    assert first.group == second.group
    assert corpus_metric(resolve(tmp_path / "ours.tsv")) == "pope_f1"


KINDS = "kinds: [{task: open, scorer: exact}]\n"
MISTAKES = {
    f"{KINDS}metrics: mme": ":2: unknown key 'metrics' in the file. Did you mean 'metric'?",
    "about: x": ":1: the file lacks 'kinds': a list of kinds of questions",
    "kinds: []": ":1: the file lacks 'kinds': a list of kinds of questions",
    "": ": the file is empty. Expected 'kinds': a list of kinds of questions",
    "kinds: [{task: choise, scorer: x}]": ":1: kinds[1].task is the text 'choise'. Expected one of choice, yes_no, open, boxes",
    "kinds: [{task: choice}]": ":1: kinds[1] lacks 'scorer'. Required: task, scorer",
    f"{KINDS}tsv: {{block: two}}": ":2: tsv.block is the text 'two'. Expected a number of rows",
    "kinds: choice": ":1: kinds is the text 'choice'. Expected a list",
    f"{KINDS}tsv:\n  columns:\n    questoin: q": ":4: unknown key 'questoin' in tsv.columns. Did you mean 'question'?",
    f"{KINDS}tsv: {{answers: lists}}": ":2: tsv.answers is the text 'lists'. Expected one of as_written, letter, position, text",
    f"{KINDS}tsv: {{answers: {{1: yes}}}}": ":2: the key '1' in tsv.answers is not text. Put numbers, days, yes and no in quotes",
    f"{KINDS}tsv: {{answers: {{'1': yes}}}}": ":2: tsv.answers.1 is 'yes'. Expected text: put it in quotes, 'yes'",
    f"{KINDS}tsv: {{parts: {{index: '('}}}}": ":2: tsv.parts.index is the text '('. Expected a regular expression",
    f"{KINDS}tsv: {{keys: {{a: '{{b'}}}}": ":2: tsv.keys.a is the text '{b'. Expected a column, or columns in braces",
    f"{KINDS}tsv: {{columns: {{images: x}}}}": ":2: tsv has ids or images. Expected neither",
    f"{KINDS}hub:\n- columns: {{id: x}}": ":3: hub[1] lacks columns for answer, images, question. Required: id, answer, images",
    f"{KINDS}circular: 1": ":2: circular is '1'. Expected true or false",
    f"{KINDS}together: figure": ":2: together is the text 'figure'. Expected a key that stands among the 'keys' of each of its",
    "kinds: [{task: open, scorer: 3}]": ":1: kinds[1].scorer is '3'. Expected the name of a scorer, in quotes: '3'",
    "a: [": ":1: not YAML: ",
}


@pytest.mark.cases(("text", "said"), MISTAKES.items())
def test_mistakes_in_a_record_are_named_by_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.benchmark.yaml"
    path.write_text(text)
    with pytest.raises(DatasetError, match=re.escape(f"x.benchmark.yaml{said}")):
        read_benchmark(path)


def test_templates_need_the_columns_they_name() -> None:
    layout = Layout({"id": ("{a}-{row}",), "answer": ("x", "y")}, keys={"k": "{part}{b}"}, parts={"c": "(?P<part>.)"})
    assert layout.needed_columns() == [(("c",), "parts"), (("a",), "id"), (("x", "y"), "answer"), (("b",), "keys.k")]


def test_a_record_of_ones_own_is_part_of_the_digest(tmp_path: Path) -> None:
    digests = set()
    for text in ("", KINDS, KINDS.replace("exact", "anls")):
        if text:
            (tmp_path / "ours.benchmark.yaml").write_text(text)
        read(tmp_path, "ours", row())
        digests.add(resolve(tmp_path / "ours.tsv").digest)
    assert len(digests) == 3


def boxed(**cells: str) -> dict[str, str]:
    edges = {"bbox_x1": "10", "bbox_y1": "20.5", "bbox_x2": "30", "bbox_y2": "40", "width": "96", "height": "72"}
    return {"index": "1", "question": "the red square", "category": "RefCOCO val", **edges, **cells}


def test_a_box_is_that_of_the_columns_which_the_record_names(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, "RefCOCO", boxed())
    assert (sample.task, sample.scorer, sample.target) == ("boxes", "box_hit", "")
    assert sample.changed_by == {"left_right", "up_down", "position"}
    assert sample.localisation == Localisation((96, 72), {"object": (10.0, 20.5, 30.0, 40.0)})


@pytest.mark.parametrize("wrong", [{"bbox_x2": "10"}, {"bbox_y1": "-1"}, {"bbox_x2": "97"}, {"width": "nan"}, {"height": "tall"}])
def test_what_is_no_box_of_its_picture_is_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    ((edge, value),) = wrong.items()
    text = problem(tmp_path, "RefCOCO", boxed(**wrong))
    assert f"{edge.removeprefix('bbox_')} {value}" in text
    assert "expected a box with an area, in pixels and inside of its image" in text


def test_rows_of_a_block_are_one_group(tmp_path: Path) -> None:
    rows = [row(index=str(number), A="one", B="two", answer="A") for number in range(4)]
    assert [sample.group for sample in read(tmp_path, "MMVP", *rows)] == ["0", "0", "1", "1"]


def test_named_images_are_questions_with_a_target_of_attack(tmp_path: Path) -> None:
    folder = tmp_path / "RTA100"
    folder.mkdir()
    for label, text in (("cup", "dog"), ("hand blender", "bus")):
        (folder / f"label={label}_text={text}.png").write_bytes(synthetic.picture(0))
    dataset = resolve(folder)
    cup, blender = (next(s for s in dataset.samples() if name in s.id) for name in ("cup", "blender"))
    assert cup.options[str(cup.target)] == "cup"
    assert cup.options[cup.target_of_attack] == "dog"
    assert {*blender.options.values()} == {"hand blender", "bus"}
    assert cup.question == "What entity is depicted in the image?"
    before = dataset.digest
    (folder / "label=cup_text=dog.png").rename(folder / "label=cup_text=cat.png")
    assert resolve(folder).digest != before
    (folder / "notes.txt").write_text("", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"names have the form 'label=.*', and 1 of 3 files are named otherwise: notes\.txt"):
        resolve(folder).samples()


def test_shuffled_options_stand_everywhere_and_the_answer_moves_with_them(tmp_path: Path) -> None:
    rows = [
        row(index=str(number), choices='["cat", "dog", "fox"]', answer="cat", type="normal", category="mirror")
        for number in range(60)
    ]
    samples = read(tmp_path, "MVI-Bench", *rows)
    assert {sample.target for sample in samples} == {*"ABC"}
    assert all(sample.options[str(sample.target)] == "cat" for sample in samples)
    assert "found 'cow', expected the text of an option: " in problem(tmp_path, "MVI-Bench", {**rows[0], "answer": "cow"})


def test_a_list_of_rows_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "MVI-Bench"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "1.png").write_bytes(synthetic.picture(0))
    rows = [{"image": "images/1.png", "question": "What is it?", "choices": ["cat", "dog"], "answer": "cat", "type": kind,
             "category": "mirror"} for kind in ("normal", "misleading")]  # fmt: skip
    (folder / "annotations.json").write_text(json.dumps(rows), encoding="utf-8")
    dataset = resolve(folder)
    samples = dataset.samples()
    assert [(sample.id, sample.keys["type"]) for sample in samples] == [("0", "normal"), ("1", "misleading")]
    assert [sample.options[str(sample.target)] for sample in samples] == ["cat", "cat"]
    assert samples[0].layout == "{question}\nChoices:\n{options}\n{instruction}"
    assert (corpus_metric(dataset), samples[1].images[0].load().shape) == ("mvi_bench", (72, 96, 3))
    for text, said in (("{}", "something else than a list of objects"), ("[", "is not JSON in UTF-8")):
        (folder / "annotations.json").write_text(text, encoding="utf-8")
        with pytest.raises(DatasetError, match=said):
            resolve(folder).samples()


def test_an_answer_that_a_prior_expects_is_no_attack_where_it_is_right(tmp_path: Path) -> None:
    legs = {"question": "How many?", "ground_truth": "5", "topic": "Animals"}
    four, five = read(
        tmp_path,
        "vlms_are_biased_main",
        {**legs, "index": "1", "expected_bias": "4"},
        {**legs, "index": "2", "expected_bias": "5"},
    )
    assert (four.target_of_attack, five.target_of_attack) == ("4", "")


def test_an_image_that_is_named_by_index_is_that_of_its_form(tmp_path: Path) -> None:
    columns = ["index", "type", "image", "question", "A", "B", "answer", "hint"]
    images = {form: b64encode(synthetic.picture(0, shade=shade)).decode() for shade, form in enumerate(("standard", "upd"))}
    rows = [[index, form, image, "Is it?", "cat", "No answer", "A", ""] for form in images for index, image in
            (("12", images[form]), ("1000012", "12"))]  # fmt: skip
    path = tmp_path / "mmivqd_20240303_option.tsv"
    path.write_text("\n".join("\t".join(cells) for cells in [columns, *rows, []]), encoding="utf-8")
    samples = resolve(path).samples()
    assert [sample.id for sample in samples] == ["standard-12", "standard-1000012", "upd-12", "upd-1000012"]
    assert {sample.keys["question"] for sample in samples} == {"12"}
    shown = [sample.images[0].identity() for sample in samples]
    assert shown[0] == shown[1] != shown[2] == shown[3]
