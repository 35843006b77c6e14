"""The JSONL reader: its schema, and what it says about lines that do not follow it."""

from __future__ import annotations

import base64
import importlib
import io
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import DatasetError, ImageError, MissingExtra
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.sample import MISSING, UNDECLARED, Sample, strata_by_kind
from pytest_vlmrobust.datasets.files import DatasetWarning
from pytest_vlmrobust.datasets.resolve import open_dataset


def lines_png(red: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (red, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.png").write_bytes(lines_png(1))
    (tmp_path / "pictures" / "2.png").write_bytes(lines_png(2))
    return tmp_path


def row(**keys: Any) -> dict[str, Any]:
    base = {"id": "q1", "image": "pictures/1.png", "question": "What?", "options": ["cat", "dog"], "answer": "B"}
    return {key: value for key, value in {**base, **keys}.items() if value is not ...}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "own.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in rows))
    return path


def read_lines(folder: Path, *rows: object) -> Sequence[Sample]:
    return open_dataset(write(folder, *rows)).samples()


def problem(folder: Path, *rows: object) -> str:
    with pytest.raises(DatasetError) as caught:
        read_lines(folder, *rows)
    return str(caught.value).replace(str(folder), "DIR")


def test_reads_how_an_answer_is_asked_for_and_scored(folder: Path) -> None:
    (sample,) = read_lines(folder, row(scorer="exact", instruction="Be brief.", keys={"figure": 3}))
    assert (sample.scorer, sample.instruction, dict(sample.keys)) == ("exact", "Be brief.", {"figure": "3"})


def test_says_which_pictures_a_setting_changes(folder: Path) -> None:
    both = row(image=["pictures/1.png", "pictures/2.png"])
    read_as = [
        read_lines(folder, both | keys)[0].perturbed for keys in ({}, {"perturbed": [2]}, {"perturbed": 1}, {"perturbed": "2, 1"})
    ]
    assert read_as == [None, (1,), (0,), (1, 0)]


def test_reads_every_key(folder: Path) -> None:
    (sample,) = read_lines(folder, row(category="animals", group="g", hint="look", task="choice", changed_by=["left_right"]))
    assert (sample.id, sample.question, sample.target, sample.task) == ("q1", "What?", "B", "choice")
    assert dict(sample.options) == {"A": "cat", "B": "dog"}
    assert (sample.category, sample.group, sample.hint, sample.changed_by) == ("animals", "g", "look", frozenset({"left_right"}))
    assert sample.images[0].load()[0, 0, 0] == 1


def test_options_may_name_their_letters_and_be_numbers(folder: Path) -> None:
    (sample,) = read_lines(folder, row(options={"C": 3, "D": 4.5}, answer="D"))
    assert dict(sample.options) == {"C": "3", "D": "4.5"}


def test_pictures_may_be_inside(folder: Path) -> None:
    encoded = base64.b64encode(lines_png(9)).decode()
    url = f"data:image/png;base64,{base64.b64encode(lines_png(8)).decode()}"
    first, second = read_lines(folder, "", row(image=encoded), row(id="q2", image=..., images=["pictures/2.png", url]))
    assert first.images[0].load()[0, 0, 0] == 9
    assert [image.load()[0, 0, 0] for image in second.images] == [2, 8]
    assert second.images[0].identity() != second.images[1].identity()


def test_the_same_file_under_two_names_is_the_same_picture(folder: Path) -> None:
    (folder / "copy.png").write_bytes(lines_png(1))
    (folder / "other.png").write_bytes(lines_png(1)[:-1] + b"x")  # of the same size
    names = ("pictures/1.png", "copy.png", "./copy.png", "other.png")
    samples = read_lines(folder, *(row(id=name, image=name) for name in names))
    assert samples[0].images[0].identity() == samples[1].images[0].identity()
    assert samples[0].group == samples[1].group == samples[2].group != samples[3].group
    named = read_lines(folder, *(row(id=name, image=name, group=name) for name in names))
    assert [sample.group for sample in named] == [*names]


@pytest.mark.parametrize(
    ("answer", "task", "target"),
    [
        ("Yes", "yes_no", "yes"),
        (False, "yes_no", "no"),
        ("False", "yes_no", "no"),
        (3, "open", "3"),
        (["red", "crimson"], "open", ("red", "crimson")),
    ],
)
def test_answers_without_options(folder: Path, answer: object, task: str, target: object) -> None:
    (sample,) = read_lines(folder, row(options=..., answer=answer))
    assert (sample.task, sample.target) == (task, target)


def test_an_open_question_declares_its_scorer_or_has_none(folder: Path) -> None:
    questions = (
        row(id=str(n), options=..., answer="red", **more) for n, more in enumerate(({}, {"scorer": "anls"}, {"task": "open"}))
    )
    assert [sample.scorer for sample in read_lines(folder, *questions)] == [UNDECLARED, "anls", ""]


def test_a_given_task_wins_over_the_guess(folder: Path) -> None:
    samples = read_lines(folder, row(options=..., answer="yes", task="open"), row(id="q2", options=..., answer="no"))
    assert [(sample.task, sample.scorer) for sample in samples] == [("open", ""), ("yes_no", "")]


@pytest.mark.cases(
    ("line", "message"),
    [
        (row(anwser="B"), "call it meta.anwser. Did you mean 'answer'? Known: id, image"),
        (row(answer=...), "own.jsonl:1, id 'q1', key 'answer': found None, expected a value: this key is required"),
        (row(image=...), "key 'image': found [], expected either 'image' or 'images'"),
        (row(images=["pictures/1.png"]), "found ['image', 'images'], expected either"),
        (
            row(image="gone.png"),
            "key 'image': found 'gone.png', expected an image file, a data: URL or base64; no file DIR/gone.png",
        ),
        (row(image="pictures\\1.png"), "no file DIR/pictures\\1.png (folders are separated by '/': write 'pictures/1.png')"),
        (row(image="pictures/1.PNG"), "no file DIR/pictures/1.PNG (there is '1.png': capitals count)"),
        (row(image="https://host/a.png"), "nothing is downloaded: save the image beside the file"),
        (row(image=...) | {"images": []}, "key 'images': found [], expected a path, a data: URL or base64"),
        (row(answer="Z"), "id 'q1', key 'answer': found 'Z', expected one of A, B"),
        (row(answer="Dog"), "found 'Dog', expected one of A, B. Write 'B', the letter of this option"),
        (row(answer="a"), "found 'a', expected one of A, B. Write 'A', the letter of this option"),
        (row(label="B"), "key 'label': found 'B', expected no such key. Did you mean 'answer'? Known: id, image"),
        (row(**{" Image": "1.png"}), "key ' Image': found '1.png', expected no such key. Did you mean 'image'?"),
        (row(answer={}), "key 'answer': found {}, expected text, a number"),
        (row(options="cat"), "key 'options': found 'cat', expected a list of at most 26 texts"),
        (row(options={"a": "cat"}), "key 'options': found {'a': 'cat'}, expected a list"),
        (row(options=["cat"], answer="A"), "found {'A': 'cat'}, expected two options or more, or none"),
        (row(task="chioce"), "found 'chioce', expected one of choice, yes_no, open. Did you mean 'choice'?"),
        (row(task="open"), "found {'A': 'cat', 'B': 'dog'}, expected none, because the task is 'open'"),
        (row(task="yes_no", options=..., answer="red"), "found 'red', expected Yes or No"),
        (row(options=..., answer=" "), "found '', expected an answer, or a list of accepted answers"),
        (row(question=None), "key 'question': found None, expected text"),
        (row(id=""), "key 'id': found '', expected a value"),
        (row(keys=["figure"]), "key 'keys': found ['figure'], expected an object from names to texts"),
        (row(changed_by="flip_h"), "key 'changed_by': found 'flip_h', expected a list of names, such as [\"flip_h\"]"),
        (row(perturbed=[2]), "key 'perturbed': found '[2]', expected different numbers of images from 1 to 1, such as [1]"),
        (row(perturbed=[1, 1]), "key 'perturbed': found '[1, 1]', expected different numbers"),
        (row(perturbed=[]), "key 'perturbed': found '[]', expected different numbers"),
        (row(perturbed=True), "key 'perturbed': found 'True', expected different numbers"),
        ('{"id": 1', "found '{\"id\": 1', expected a JSON object ("),
        ("[1]", "own.jsonl:1, the line, key '(all)': found [1], expected a JSON object"),
        ('{"id": 1, "id": 2}', "the key 'id' occurs twice"),
        ('{"id": NaN}', "NaN is not JSON"),
    ],
)
def test_a_line_that_does_not_follow_the_schema(folder: Path, line: object, message: str) -> None:
    assert message in problem(folder, line)


def test_all_problems_are_reported_with_their_lines(folder: Path) -> None:
    text = problem(folder, row(), row(), "oops", row(id="q4", answer="Z"))
    assert "has 3 problems" in text
    assert re.findall(r"own\.jsonl:(\d+),", text) == ["3", "2", "4"]
    assert "found 'q1', expected a value of its own (line 1 has it too)" in text


def test_an_image_path_that_starts_at_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    text = problem(folder, row(image=f"{folder.name}/pictures/1.png"))
    assert text.endswith("(a path starts at the folder of the data: write 'pictures/1.png')")


def test_each_kind_of_problem_is_shown_before_the_second_of_any(folder: Path) -> None:
    text = problem(folder, *({"img": "1.png", "prompt": "What?", "label": "B"} for _ in range(40)))
    assert "has 163 problems" in text
    assert [
        key
        for key in ("id", "question", "answer", "image", "img", "prompt", "label")
        if f"own.jsonl:1, the line, key {key!r}" not in text
    ] == []
    assert text.count("own.jsonl:") == 10
    assert text.endswith("… and 153 more")


def test_a_file_that_is_not_utf8(folder: Path) -> None:
    path = write(folder, row())
    path.write_text(path.read_text(), "utf-16")
    with pytest.raises(DatasetError, match=r"own\.jsonl:1 is not UTF-8 \(.*\)\. Save the file as UTF-8"):
        open_dataset(path).samples()


def test_an_empty_file(folder: Path) -> None:
    assert "own.jsonl is empty: expected one JSON object per line" in problem(folder)


def test_base64_that_is_longer_than_a_file_name_may_be_is_no_path(folder: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(stream, "PNG")
    text = base64.b64encode(stream.getvalue() + bytes(600)).decode()
    assert 255 < max(map(len, text.split("/"))) <= len(text) < 1024
    (sample,) = read_lines(folder, row(image=text))
    assert sample.images[0].load().shape == (9, 9, 3)


def test_a_broken_picture_inside_is_named_when_loaded(folder: Path) -> None:
    (sample,) = read_lines(folder, row(image="data:image/png;base64,AAAA"))
    with pytest.raises(ImageError, match=r"own\.jsonl:1, id 'q1', key 'image': 3 bytes starting 000000 cannot be decoded"):
        sample.images[0].load()


def test_the_digest_covers_the_image_files(folder: Path) -> None:
    path = write(folder, row())
    before = open_dataset(path).digest
    (folder / "pictures" / "1.png").write_bytes(lines_png(99))
    assert open_dataset(path).digest != before
    gone = open_dataset(path)
    assert len(gone.samples()) == 1
    (folder / "pictures" / "1.png").unlink()
    with pytest.raises(DatasetError, match=r"own\.jsonl: .*1\.png cannot be read: No such file or directory"):
        gone.digest  # noqa: B018 - it reads the files
    encoded = write(folder, row(image=base64.b64encode(lines_png(9)).decode()))
    assert open_dataset(encoded).digest == file_digest(encoded)


def notes(folder: Path, *rows: object) -> list[str]:
    dataset = open_dataset(write(folder, *rows))
    with pytest.warns(DatasetWarning):
        dataset.samples()
    return [note.replace(str(folder), "DIR") for note in dataset.notes]  # type: ignore[attr-defined]  # of data in files


def test_the_answer_that_is_neither_yes_nor_no_is_the_problem(folder: Path) -> None:
    usual = [row(id=str(number), options=..., answer="Yes") for number in range(3)]
    said = problem(folder, *usual, row(id="q3", options=..., answer="YES."))
    assert "own.jsonl has 1 problem" in said
    assert "DIR/own.jsonl:4, id 'q3', key 'answer': found 'YES.', expected Yes or No, as in 3 of 4 rows without options" in said
    assert [sample.task for sample in read_lines(folder, *usual[:1], row(id="q3", options=..., answer="Paris"))] == [
        "yes_no",
        "open",
    ]


def test_a_yes_with_a_scorer_is_open_among_open_questions(folder: Path) -> None:
    rows = [row(id=answer, options=..., answer=answer, scorer="vqa_soft") for answer in ("yes", "red")]
    assert [sample.task for sample in read_lines(folder, *rows)] == ["open", "open"]


@pytest.mark.parametrize("text", ['[{"id": "q1"}]', '[\n {"id": "q1"}\n]'])
def test_an_array_is_no_file_of_lines(folder: Path, text: str) -> None:
    (folder / "own.jsonl").write_text(text)
    with pytest.raises(DatasetError, match="is a JSON array: expected one JSON object per line"):
        open_dataset(folder / "own.jsonl").samples()


def test_empty_options_at_the_end_are_none(folder: Path) -> None:
    (sample,) = read_lines(folder, row(options=["cat", "dog", "", " "]))
    assert sample.options == {"A": "cat", "B": "dog"}
    assert "expected a text for each option; A is empty" in problem(folder, row(options=["", "dog"]))


def test_options_that_bring_their_letter_lose_it(folder: Path) -> None:
    rows = [row(options=["A. cat", "B. dog"]), row(id="q2", options=["A. cat", "dog"])]
    dataset = open_dataset(write(folder, *rows))
    with pytest.warns(DatasetWarning, match="1 row has options that begin with their letter"):
        first, second = dataset.samples()
    assert (first.options, second.options) == ({"A": "cat", "B": "dog"}, {"A": "A. cat", "B": "dog"})


def test_options_with_one_text_are_noted(folder: Path) -> None:
    (note,) = notes(folder, row(options=["cat", "dog", "Cat "]))
    assert note == (
        "DIR/own.jsonl: 1 row has two options with one text; only the letter of the answer is right "
        "(the first: DIR/own.jsonl:1, id 'q1')"
    )


def test_pictures_that_viewers_turn_are_noted(folder: Path) -> None:
    stream, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (5, 4)).save(stream, "JPEG", exif=exif)
    (folder / "pictures" / "2.png").write_bytes(stream.getvalue())
    inside = "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
    rows = [row(), row(id="q2", image="pictures/2.png"), row(id="q3", image="pictures/2.png"), row(id="q4", image=inside)]
    (note,) = notes(folder, *rows)
    assert note.startswith("DIR/own.jsonl: 2 images are turned in viewers, by their EXIF orientation, which is not applied")
    assert note.endswith("(the first: DIR/own.jsonl:2, id 'q2')")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"id": "q\u200b1"}, "no character that nobody sees: U+200B ZERO WIDTH SPACE"),
        ({"id": "q2", "group": "g\u2060"}, "no character that nobody sees: U+2060 WORD JOINER"),
        ({"id": "\uff51\uff11"}, "a value of its own (line 1 has one that reads the same: 'q1' in NFKC)"),
    ],
)
def test_two_spellings_of_an_id_are_not_two_questions(folder: Path, second: dict[str, str], said: str) -> None:
    assert said in problem(folder, row(), row(**second))


def test_joiners_that_a_language_needs_are_no_hidden_characters(folder: Path) -> None:
    ids = ["\u0645\u0647\u200c\u0631", "\u2764\ufe0f", "\U0001f468\u200d\U0001f469"]
    assert [sample.id for sample in read_lines(folder, *(row(id=each) for each in ids))] == ids
    assert "expected a value of its own" in problem(folder, row(id=ids[0]), row(id=ids[0].replace("\u200c", "")))


def test_letters_of_another_script_that_look_alike_are_warned_of(folder: Path) -> None:
    with pytest.warns(DatasetWarning, match=r"1 id mixes letters .* U\+0430 CYRILLIC SMALL LETTER A"):
        assert len(read_lines(folder, row(id="cat"), row(id="c\u0430t"))) == 2


def png(red: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (9, 7), (red, 20, 30)).save(stream, "PNG")
    return stream.getvalue()


def content(samples: tuple[Sample, ...]) -> list[object]:
    return [
        (s.id, s.question, dict(s.options), s.target, s.category, dict(s.meta), s.target_of_attack, dict(s.keys)) for s in samples
    ]


def read(path: Path) -> tuple[Sample, ...]:
    return tuple(open_dataset(path).samples())


def read_rows(path: Path, *rows: dict[str, Any]) -> tuple[Sample, ...]:
    (path / "p.png").write_bytes(png())
    base = {"image": "p.png", "question": "What?", "options": ["cat", "dog"], "answer": "B"}
    lines = [json.dumps({"id": str(number), **base, **row}) for number, row in enumerate(rows)]
    (path / "own.jsonl").write_text("\n".join(lines))
    return read(path / "own.jsonl")


CSV = """id,image,question,A,B,answer,category,meta.camera,meta.site,keys,target_of_attack
1,p.png,"What, here?",cat,dog,B,x,night,3,"{'figure': 'f'}",A
2,p.png,Which?,cat,dog,A,x,,3,,
"""
JSONL = [
    {
        "id": 1,
        "image": "p.png",
        "question": "What, here?",
        "options": ["cat", "dog"],
        "answer": "B",
        "category": "x",
        "meta": {"camera": "night", "site": 3},
        "keys": {"figure": "f"},
        "target_of_attack": "A",
    },
    {
        "id": 2,
        "image": "p.png",
        "question": "Which?",
        "options": ["cat", "dog"],
        "answer": "A",
        "category": "x",
        "meta.site": "3",
    },
]


def test_a_csv_gives_the_samples_of_the_same_jsonl(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.csv").write_text(CSV)
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, JSONL)))
    from_csv, from_jsonl = read(tmp_path / "own.csv"), read(tmp_path / "own.jsonl")
    assert content(from_csv) == content(from_jsonl)
    assert dict(from_csv[1].meta) == {"camera": MISSING, "site": "3"}
    assert from_csv[0].group == from_jsonl[0].group


def test_a_picture_inside_a_csv_is_read_when_it_is_shown(tmp_path: Path) -> None:
    text = base64.b64encode(png(200)).decode()
    (tmp_path / "own.csv").write_text(f"id,image,question,answer\n1,{text},Is it?,yes\n")
    (sample,) = read(tmp_path / "own.csv")
    assert sample.images[0].load()[0, 0].tolist() == [200, 20, 30]


@pytest.mark.cases(
    ("text", "message"),
    [
        (
            CSV.replace("category", "categroy"),
            "own.csv:2, row id '1', column 'categroy': found 'x', expected no such column (the first of 2 rows with it). If",
        ),
        (CSV.replace("category", "weather"), "If it describes the question, call it meta.weather. Known: id"),
        (CSV.replace("Which?,cat", "Which?,cat,more"), "own.csv:3, row id '2', column '(all)': found '12 fields', expected 11"),
        (
            CSV.replace(",f'}\",A", ",f'}\",A").replace('",A\n', '",C\n'),
            "column 'target_of_attack': found 'C', expected one of A",
        ),
        (CSV.replace('",A\n', '",B\n'), "column 'target_of_attack': found 'B', expected another answer than the right one"),
        (CSV.replace(",", "\t"), "expected columns separated by commas. The file seems to have '\\t' between them"),
        ("", "is empty: expected a line of column names, and rows"),
        ("id,id\n1,2\n", "own.csv:1 names the column 'id' twice"),
        ("id,image,question,answer\n", "is empty: expected a line of column names, and rows"),
    ],
)
def test_a_malformed_csv_is_named_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(DatasetError) as caught:
        read(tmp_path / "own.csv")
    assert message in str(caught.value)


def test_nested_metadata_become_columns_and_a_missing_value_is_a_slice(tmp_path: Path) -> None:
    samples = read_rows(tmp_path, {"meta": {"camera": {"lens": "wide"}, "night": True}}, {"meta.night": ""}, {})
    assert strata_by_kind(samples) == {
        "meta.camera.lens": [f"meta.camera.lens={MISSING}", "meta.camera.lens=wide"],
        "meta.night": [f"meta.night={MISSING}", "meta.night=true"],
    }
    assert samples[2].strata == (f"meta.camera.lens={MISSING}", f"meta.night={MISSING}")


@pytest.mark.cases(
    ("row", "message"),
    [
        ({"meta": {"a": [1]}}, "key 'meta.a': found [1], expected text, a number, true or false"),
        ({"meta": "night"}, "key 'meta': found 'night', expected a name after 'meta.' without '='"),
        ({"meta.a=b": "c"}, "key 'meta.a=b': found 'c', expected a name after 'meta.' without '='"),
        ({"category": "meta.a=b"}, "key 'category': found 'meta.a=b', expected a category"),
        ({"target_of_attack": "cat"}, "key 'target_of_attack': found 'cat', expected one of A, B"),
    ],
)
def test_metadata_that_no_rule_could_name_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read_rows(tmp_path, row)
    assert message in str(caught.value)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"own\.parquet needs the package 'pyarrow', .*pip install .*pyarrow"):
        read(tmp_path / "own.parquet")


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow: pip install -e '.[parquet]'")
def test_a_parquet_file_gives_the_samples_of_the_same_jsonl(tmp_path: Path) -> None:
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, JSONL)))
    parquet.write_table(
        arrow.Table.from_pylist([{key: None for row in JSONL for key in row} | row for row in JSONL]), tmp_path / "a.parquet"
    )
    assert content(read(tmp_path / "a.parquet")) == content(read(tmp_path / "own.jsonl"))
    pictures = [{"bytes": png(red), "path": None} for red in (10, 20, 30)]
    rows = [{"id": n, "image": picture, "question": "Is it?", "answer": True} for n, picture in enumerate(pictures)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "b.parquet", row_group_size=2)
    samples = read(tmp_path / "b.parquet")
    assert [int(np.max(sample.images[0].load()[..., 0])) for sample in samples] == [10, 20, 30]
    assert [sample.target for sample in samples] == ["yes"] * 3
    (tmp_path / "c.parquet").write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match=r"c\.parquet cannot be read"):
        read(tmp_path / "c.parquet")
