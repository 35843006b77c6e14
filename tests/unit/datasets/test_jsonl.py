"""The JSONL reader: its schema, and what it says about lines that do not follow it."""

import base64
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import DatasetError, ImageError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.sample import UNDECLARED, Sample
from pytest_vlmrobust.datasets.files import DatasetWarning
from pytest_vlmrobust.datasets.resolve import open_dataset


def png(red: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (red, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.png").write_bytes(png(1))
    (tmp_path / "pictures" / "2.png").write_bytes(png(2))
    return tmp_path


def row(**keys: Any) -> dict[str, Any]:
    base = {"id": "q1", "image": "pictures/1.png", "question": "What?", "options": ["cat", "dog"], "answer": "B"}
    return {key: value for key, value in {**base, **keys}.items() if value is not ...}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "own.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in rows))
    return path


def read(folder: Path, *rows: object) -> Sequence[Sample]:
    return open_dataset(write(folder, *rows)).samples()


def problem(folder: Path, *rows: object) -> str:
    with pytest.raises(DatasetError) as caught:
        read(folder, *rows)
    return str(caught.value).replace(str(folder), "DIR")


def test_reads_how_an_answer_is_asked_for_and_scored(folder: Path) -> None:
    (sample,) = read(folder, row(scorer="exact", instruction="Be brief.", keys={"figure": 3}))
    assert (sample.scorer, sample.instruction, dict(sample.keys)) == ("exact", "Be brief.", {"figure": "3"})


def test_says_which_pictures_a_setting_changes(folder: Path) -> None:
    both = row(image=["pictures/1.png", "pictures/2.png"])
    read_as = [
        read(folder, both | keys)[0].perturbed for keys in ({}, {"perturbed": [2]}, {"perturbed": 1}, {"perturbed": "2, 1"})
    ]
    assert read_as == [None, (1,), (0,), (1, 0)]


def test_reads_every_key(folder: Path) -> None:
    (sample,) = read(folder, row(category="animals", group="g", hint="look", task="choice", changed_by=["left_right"]))
    assert (sample.id, sample.question, sample.target, sample.task) == ("q1", "What?", "B", "choice")
    assert dict(sample.options) == {"A": "cat", "B": "dog"}
    assert (sample.category, sample.group, sample.hint, sample.changed_by) == ("animals", "g", "look", frozenset({"left_right"}))
    assert sample.images[0].load()[0, 0, 0] == 1


def test_options_may_name_their_letters_and_be_numbers(folder: Path) -> None:
    (sample,) = read(folder, row(options={"C": 3, "D": 4.5}, answer="D"))
    assert dict(sample.options) == {"C": "3", "D": "4.5"}


def test_pictures_may_be_inside(folder: Path) -> None:
    encoded = base64.b64encode(png(9)).decode()
    url = f"data:image/png;base64,{base64.b64encode(png(8)).decode()}"
    first, second = read(folder, "", row(image=encoded), row(id="q2", image=..., images=["pictures/2.png", url]))
    assert first.images[0].load()[0, 0, 0] == 9
    assert [image.load()[0, 0, 0] for image in second.images] == [2, 8]
    assert second.images[0].identity() != second.images[1].identity()


def test_the_same_file_under_two_names_is_the_same_picture(folder: Path) -> None:
    (folder / "copy.png").write_bytes(png(1))
    first, second = read(folder, row(), row(id="q2", image="copy.png"))
    assert first.images[0].identity() == second.images[0].identity()
    assert first.group != second.group


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
    (sample,) = read(folder, row(options=..., answer=answer))
    assert (sample.task, sample.target) == (task, target)


def test_an_open_question_declares_its_scorer_or_has_none(folder: Path) -> None:
    questions = (
        row(id=str(n), options=..., answer="red", **more) for n, more in enumerate(({}, {"scorer": "anls"}, {"task": "open"}))
    )
    assert [sample.scorer for sample in read(folder, *questions)] == [UNDECLARED, "anls", ""]


def test_a_given_task_wins_over_the_guess(folder: Path) -> None:
    samples = read(folder, row(options=..., answer="yes", task="open"), row(id="q2", options=..., answer="no"))
    assert [(sample.task, sample.scorer) for sample in samples] == [("open", ""), ("yes_no", "")]


@pytest.mark.cases(
    ("line", "message"),
    [
        (row(anwser="B"), "key 'anwser': found 'B', expected no such key. Did you mean 'answer'? Known: id, image"),
        (row(answer=...), "own.jsonl:1, id 'q1', key 'answer': found None, expected a value: this key is required"),
        (row(image=...), "key 'image': found [], expected either 'image' or 'images'"),
        (row(images=["pictures/1.png"]), "found ['image', 'images'], expected either"),
        (
            row(image="gone.png"),
            "key 'image': found 'gone.png', expected an image file, a data: URL or base64; no file DIR/gone.png",
        ),
        (row(image="https://host/a.png"), "nothing is downloaded: save the image beside the file"),
        (row(image=...) | {"images": []}, "key 'images': found [], expected a path, a data: URL or base64"),
        (row(answer="Z"), "id 'q1', key 'answer': found 'Z', expected one of A, B"),
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


def test_an_empty_file(folder: Path) -> None:
    assert "own.jsonl is empty: expected one JSON object per line" in problem(folder)


def test_base64_that_is_longer_than_a_file_name_may_be_is_no_path(folder: Path) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(stream, "PNG")
    text = base64.b64encode(stream.getvalue() + bytes(600)).decode()
    assert 255 < max(map(len, text.split("/"))) <= len(text) < 1024
    (sample,) = read(folder, row(image=text))
    assert sample.images[0].load().shape == (9, 9, 3)


def test_a_broken_picture_inside_is_named_when_loaded(folder: Path) -> None:
    (sample,) = read(folder, row(image="data:image/png;base64,AAAA"))
    with pytest.raises(ImageError, match=r"own\.jsonl:1, id 'q1', key 'image': 3 bytes starting 000000 cannot be decoded"):
        sample.images[0].load()


def test_the_digest_covers_the_image_files(folder: Path) -> None:
    path = write(folder, row())
    before = open_dataset(path).digest
    (folder / "pictures" / "1.png").write_bytes(png(99))
    assert open_dataset(path).digest != before
    gone = open_dataset(path)
    assert len(gone.samples()) == 1
    (folder / "pictures" / "1.png").unlink()
    with pytest.raises(DatasetError, match=r"own\.jsonl: .*1\.png cannot be read: No such file or directory"):
        gone.digest  # noqa: B018 - it reads the files
    encoded = write(folder, row(image=base64.b64encode(png(9)).decode()))
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
    assert [sample.task for sample in read(folder, *usual[:1], row(id="q3", options=..., answer="Paris"))] == ["yes_no", "open"]


def test_a_yes_with_a_scorer_is_open_among_open_questions(folder: Path) -> None:
    rows = [row(id=answer, options=..., answer=answer, scorer="vqa_soft") for answer in ("yes", "red")]
    assert [sample.task for sample in read(folder, *rows)] == ["open", "open"]


@pytest.mark.parametrize("text", ['[{"id": "q1"}]', '[\n {"id": "q1"}\n]'])
def test_an_array_is_no_file_of_lines(folder: Path, text: str) -> None:
    (folder / "own.jsonl").write_text(text)
    with pytest.raises(DatasetError, match="is a JSON array: expected one JSON object per line"):
        open_dataset(folder / "own.jsonl").samples()


def test_empty_options_at_the_end_are_none(folder: Path) -> None:
    (sample,) = read(folder, row(options=["cat", "dog", "", " "]))
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
    assert [sample.id for sample in read(folder, *(row(id=each) for each in ids))] == ids
    assert "expected a value of its own" in problem(folder, row(id=ids[0]), row(id=ids[0].replace("\u200c", "")))


def test_letters_of_another_script_that_look_alike_are_warned_of(folder: Path) -> None:
    with pytest.warns(DatasetWarning, match=r"1 id mixes letters .* U\+0430 CYRILLIC SMALL LETTER A"):
        assert len(read(folder, row(id="cat"), row(id="c\u0430t"))) == 2
