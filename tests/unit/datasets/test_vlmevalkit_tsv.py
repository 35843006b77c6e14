"""The VLMEvalKit TSV reader: every column, every trap, every message."""

from __future__ import annotations

import base64
import csv
import io
import pickle  # noqa: TID251 - only to show that image sources reach worker processes
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import DatasetError, ImageError, UnknownName
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.core.sample import UNDECLARED, Sample
from pytest_vlmrobust.datasets.files import DatasetWarning, FileDataset
from pytest_vlmrobust.datasets.resolve import open_dataset
from pytest_vlmrobust.datasets.vlmevalkit_tsv import as_vlmevalkit_shows


def png(red: int = 0, size: tuple[int, int] = (9, 7)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, (red, 20, 30)).save(stream, "PNG")
    return stream.getvalue()


def b64(red: int = 0) -> str:
    return base64.b64encode(png(red)).decode()


def write(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, delimiter="\t", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def mcq(index: str, **cells: str) -> dict[str, str]:
    row = {"index": index, "image": b64(), "question": "What?", "A": "cat", "B": "dog", "answer": "B"}
    return {**row, **cells}


def opened(path: Path, *, compat: str = "") -> FileDataset:
    dataset = open_dataset(path, compat=compat)
    assert isinstance(dataset, FileDataset)
    return dataset


def read(tmp_path: Path, *rows: Mapping[str, str], name: str = "toy", compat: str = "") -> Sequence[Sample]:
    return opened(write(tmp_path / f"{name}.tsv", rows), compat=compat).samples()


def problem(tmp_path: Path, *rows: Mapping[str, str], name: str = "toy") -> str:
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, *rows, name=name)
    return str(caught.value).replace(str(tmp_path), "DIR")


def test_reads_a_choice(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, mcq("7", C="", D="12", hint="look", category="animals", split="dev"))
    assert (sample.id, sample.task, sample.target) == ("7", "choice", "B")
    assert dict(sample.options) == {"A": "cat", "B": "dog", "D": "12"}
    assert (sample.question, sample.hint, sample.category) == ("What?", "look", "animals")
    (source,) = sample.images
    pixels = source.load()
    assert pixels.dtype == np.uint8
    assert pixels.shape == (7, 9, 3)
    assert tuple(pixels[0, 0]) == (0, 20, 30)


def test_category_falls_back_to_l2_category(tmp_path: Path) -> None:
    assert read(tmp_path, mcq("1", **{"l2-category": "coarse"}))[0].category == "coarse"
    assert read(tmp_path, mcq("1", **{"l2-category": "coarse", "category": "fine"}))[0].category == "fine"


def test_keeps_the_order_of_the_file_and_quoted_fields(tmp_path: Path) -> None:
    question = 'A "5"\ttv"\nand a second line'
    samples = read(tmp_path, mcq("b", question=question), mcq("a"), mcq("c", image=b64(200)))
    assert [sample.id for sample in samples] == ["b", "a", "c"]
    assert samples[0].question == question
    assert [sample.images[0].load()[0, 0, 0] for sample in samples] == [0, 0, 200]


def test_reads_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "toy.tsv"
    write(path, [mcq("1"), mcq("2", image=b64(9))])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    samples = opened(path).samples()
    assert [sample.id for sample in samples] == ["1", "2"]
    assert samples[1].images[0].load()[0, 0, 0] == 9


def test_a_short_image_text_means_another_row(tmp_path: Path) -> None:
    first, second = read(tmp_path, mcq("1", image="2"), mcq("2", image=b64(77)))
    assert first.images[0].load()[0, 0, 0] == 77
    assert first.images[0].identity() == second.images[0].identity()
    assert first.group == second.group != ""


def test_refuses_a_reference_to_nothing_and_a_chain(tmp_path: Path) -> None:
    text = problem(tmp_path, mcq("1", image="9"), mcq("2", image="1"), mcq("3"))
    assert "has 2 problems; fix or remove these rows:" in text
    assert "DIR/toy.tsv:2, row index '1', column 'image': found '9', expected base64 of an image, or" in text
    assert "toy.tsv:3, row index '2', column 'image': found '1', expected the index of a row that holds an image itself" in text


def test_reads_several_pictures_of_one_row(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, mcq("1", image=str([b64(1), b64(2)])))
    assert [image.load()[0, 0, 0] for image in sample.images] == [1, 2]
    assert len({image.identity() for image in sample.images}) == 2


def test_says_which_pictures_a_setting_changes(tmp_path: Path) -> None:
    both = str([b64(1), b64(2)])
    samples = read(tmp_path, mcq("1", image=both, perturbed="2"), mcq("2", image=both), mcq("3", image=both, perturbed="1, 2"))
    assert [sample.perturbed for sample in samples] == [(1,), None, (0, 1)]
    assert "column 'perturbed': found '3', expected different numbers of images from 1 to 2" in problem(
        tmp_path, mcq("1", image=both, perturbed="3")
    )


def test_refuses_code_in_a_list_of_pictures(tmp_path: Path) -> None:
    text = problem(tmp_path, mcq("1", image="[__import__('os').system('touch /tmp/never') or '" + "A" * 64 + "']"))
    assert "expected one text, or a list of texts such as ['a', 'b']" in text


def test_reads_image_paths_from_the_image_root(tmp_path: Path) -> None:
    root = tmp_path / "images" / "toy"
    root.mkdir(parents=True)
    (root / "one.png").write_bytes(png(11))
    (tmp_path / "two.png").write_bytes(png(22))
    absolute = tmp_path / "elsewhere.png"
    absolute.write_bytes(png(33))
    rows = [mcq("1", image="", image_path="one.png"), mcq("2", image="", image_path=str(["two.png", str(absolute)]))]
    first, second = read(tmp_path, *rows)
    assert first.images[0].load()[0, 0, 0] == 11
    assert [image.load()[0, 0, 0] for image in second.images] == [22, 33]


def test_copies_of_an_image_file_are_one_group(tmp_path: Path) -> None:
    for name, content in (("one.png", png(11)), ("copy.png", png(11)), ("other.png", png(22))):
        (tmp_path / name).write_bytes(content)
    samples = read(tmp_path, *(mcq(name, image="", image_path=f"{name}.png") for name in ("one", "copy", "other")))
    assert samples[0].group == samples[1].group != samples[2].group
    rows = [mcq(name, image="", image_path=f"{name}.png", g_index=name) for name in ("one", "copy")]
    assert [sample.group for sample in read(tmp_path, *rows)] == ["one", "copy"]


def test_names_an_absent_image_file_and_where_it_was_looked_for(tmp_path: Path) -> None:
    text = problem(tmp_path, mcq("1", image="", image_path="gone.png"))
    assert "column 'image_path': found 'gone.png', expected an image file; looked for DIR/images/toy/gone.png" in text
    assert "DIR/images/gone.png, DIR/gone.png" in text


def test_names_the_row_of_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    text = problem(tmp_path, mcq("1", image="", image_path=f"{'a' * 5000}.png"), mcq("2", image="", image_path="a\0.png"))
    assert "has 2 problems" in text
    assert "toy.tsv:2, row index '1', column 'image_path': found 'aaa" in text
    assert "toy.tsv:3, row index '2', column 'image_path': found 'a\\x00.png', expected an image file" in text


def test_an_option_text_none_is_an_option_and_a_note_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.tsv", [mcq("1", A="None", B="NA", C="12"), mcq("2")])
    dataset = opened(path)
    with pytest.warns(DatasetWarning, match="VLMEvalKit's prompt differs in 3 cells") as caught:
        options = dataset.samples()[0].options
    assert dict(options) == {"A": "None", "B": "NA", "C": "12"}
    assert "the file says 'None', VLMEvalKit leaves it out" in str(caught[0].message)
    assert str(caught[0].message).endswith("compat='vlmevalkit')) in a conftest.py asks them as VLMEvalKit does")
    assert dataset.notes == (str(caught[0].message),)


def test_compat_shows_what_vlmevalkit_shows(tmp_path: Path) -> None:
    rows = [mcq("1", A="None", C="12", hint="NA"), mcq("2", A="007", C="", hint="look"), mcq("3", A="3", C="5")]
    samples = read(tmp_path, *rows, compat="vlmevalkit")
    assert [dict(sample.options) for sample in samples] == [
        {"B": "dog", "C": "12.0"},
        {"A": "7.0", "B": "dog"},
        {"A": "3.0", "B": "dog", "C": "5.0"},
    ]
    assert [sample.hint for sample in samples] == ["", "look", ""]


def test_compat_is_part_of_the_digest_and_known_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.tsv", [mcq("1")])
    assert opened(path, compat="vlmevalkit").digest != opened(path).digest == file_digest(path)
    with pytest.raises(UnknownName, match=r"unknown compat 'vlmevalkt'\. Did you mean 'vlmevalkit'"):
        opened(path, compat="vlmevalkt").samples()


def test_yes_no_when_every_answer_is(tmp_path: Path) -> None:
    row = {"image": b64(), "question": "Is it?"}
    samples = read(tmp_path, {"index": "1", **row, "answer": "Yes"}, {"index": "2", **row, "answer": "no"})
    assert [(sample.task, sample.target) for sample in samples] == [("yes_no", "yes"), ("yes_no", "no")]


def test_open_when_some_answer_is_not(tmp_path: Path) -> None:
    row = {"image": b64(), "question": "What?"}
    answers = ["Yes", "['red', 'crimson']", "[0, 1]", "[1, 2)"]
    samples = read(tmp_path, *({"index": str(i), **row, "answer": answer} for i, answer in enumerate(answers)))
    assert [(sample.task, sample.scorer) for sample in samples] == [("yes_no", ""), *[("open", UNDECLARED)] * 3]
    assert [sample.target for sample in samples] == ["yes", ("red", "crimson"), "[0, 1]", "[1, 2)"]


def test_rows_without_options_may_stand_beside_choices(tmp_path: Path) -> None:
    samples = read(tmp_path, mcq("1"), mcq("2", A="", B="", answer="Yes"))
    assert [sample.task for sample in samples] == ["choice", "yes_no"]


def test_all_malformed_rows_are_reported_at_once(tmp_path: Path) -> None:
    rows = [
        mcq("1", answer="Z"),
        mcq("2", answer="b"),
        mcq("3", question="  "),
        mcq("4", answer=""),
        mcq("1"),
        mcq("6", A="", B="", answer="A"),
        mcq("7", B=""),
    ]
    text = problem(tmp_path, *rows)
    for part in (
        "toy.tsv:2, row index '1', column 'answer': found 'Z', expected one of A, B",
        "toy.tsv:3, row index '2', column 'answer': found 'b', expected one of A, B",
        "toy.tsv:4, row index '3', column 'question': found '  ', expected the text of a question",
        "toy.tsv:5, row index '4', column 'answer': found '', expected one of A, B",
        "toy.tsv:6, row index '1', column 'index': found '1', expected a value of its own (line 2 has it too)",
        "toy.tsv:7, row index '6', column 'A': found '', expected options, because the answer is the letter 'A'",
        "toy.tsv:8, row index '7', column 'options': found {'A': 'cat'}, expected two options or more, or none",
    ):
        assert part in text


def test_of_many_problems_ten_are_shown(tmp_path: Path) -> None:
    text = problem(tmp_path, *(mcq(str(i), answer="Z") for i in range(25)))
    assert "has 25 problems" in text
    assert text.count("found 'Z'") == 10
    assert text.endswith("… and 15 more")


def test_long_values_are_shortened(tmp_path: Path) -> None:
    assert re.search(r"found 'x{40,}… \(\d+ characters\)", problem(tmp_path, mcq("1", answer="x" * 500)))


def test_a_ragged_row_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.tsv", [mcq("1"), mcq("2")])
    path.write_text(path.read_text() + "3\tshort\n")
    with pytest.raises(DatasetError, match=r"toy\.tsv:4, row index '3', column '\(all\)': found '2 fields', expected 6"):
        opened(path).samples()


@pytest.mark.parametrize("stray", ['"Hello" he said', '"never closed'])
def test_a_stray_quote_is_named_by_line(tmp_path: Path, stray: str) -> None:
    path = tmp_path / "toy.tsv"
    path.write_text(f"index\timage\tquestion\tanswer\n1\t{b64()}\tq\tred\n2\t{b64()}\t{stray}\tred\n3\t{b64()}\tq\tred\n")
    with pytest.raises(DatasetError, match=r"toy\.tsv:3 is not a row of tab-separated values .*every double quote in it doubled"):
        opened(path).samples()


def test_a_file_that_is_not_utf8_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "toy.tsv"
    path.write_bytes(b"index\timage\tquestion\tanswer\n1\tx\tcaf\xe9\tred\n")
    with pytest.raises(DatasetError, match=r"toy\.tsv:2 is not UTF-8"):
        opened(path).samples()


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("index\timage\tquestoin\tanswer", "has no column 'question'. Did you mean 'questoin'? Found: index, image, questoin"),
        ("image\tquestion\tanswer", "has no column 'index'."),
        ("index\timage\tquestion", "has no column 'answer'."),
        ("index;image;question;answer", "The file seems to have ';' between them"),
        ('"index","image","question","answer"', "The file seems to have ',' between them"),
        ("index,image,question,answer", "is one column, 'index,image,question,answer': expected columns separated by tabs."),
        ("index\tquestion\tanswer", "has neither a column 'image' nor 'image_path'."),
        ("index\timage\timage\tquestion\tanswer", "names the column 'image' twice"),
        ("", "is empty: expected a line of column names, and rows"),
        ("index\timage\tquestion\tanswer", "has no row with a question and an image"),
    ],
)
def test_a_header_that_cannot_be_used(tmp_path: Path, header: str, message: str) -> None:
    path = tmp_path / "toy.tsv"
    path.write_text(header + "\n" if header else "")
    with pytest.raises(DatasetError, match=re.escape(message)):
        opened(path).samples()


def test_rows_without_any_picture_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "toy.tsv", [mcq("1"), mcq("2", image=""), mcq("3", image="")]))
    with pytest.warns(DatasetWarning, match=r"2 rows have no image and are left out \(the first: .*toy.tsv:3, row index '2'\)"):
        assert [sample.id for sample in dataset.samples()] == ["1"]


@pytest.mark.parametrize(
    ("name", "cells", "group"),
    [
        ("toy", {"g_index": "5"}, "5"),
        ("MMBench_DEV_EN", {}, "12"),
        ("MMBench_DEV_EN", {"g_index": "5"}, "5"),
        ("my_circular_set", {}, "12"),
    ],
)
def test_group(tmp_path: Path, name: str, cells: dict[str, str], group: str) -> None:
    assert read(tmp_path, mcq("3000012", **cells), name=name)[0].group == group


def test_group_is_the_picture_where_nothing_says_otherwise(tmp_path: Path) -> None:
    groups = [sample.group for sample in read(tmp_path, mcq("1"), mcq("1000001"), mcq("2", image=b64(5)))]
    assert groups[0] == groups[1] != groups[2]


def test_a_broken_picture_is_an_error_when_loaded_and_not_before(tmp_path: Path) -> None:
    cut = base64.b64encode(png()[:60] + b"\0" * 20).decode()
    first, second = read(tmp_path, mcq("1", image="!" * 100), mcq("2", image=cut))
    with pytest.raises(
        ImageError, match=r"toy\.tsv:2, row index '1', column 'image': 100 characters starting '!+' are not base64"
    ):
        first.images[0].load()
    with pytest.raises(
        ImageError, match=r"toy\.tsv:3, row index '2', column 'image': 80 bytes starting 89504e47.* cannot be decoded"
    ):
        second.images[0].load()


def test_a_file_that_changed_while_it_was_read_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "toy.tsv", [mcq("1")])
    (sample,) = opened(path).samples()
    write(path, [mcq("0"), mcq("1")])
    with pytest.raises(ImageError, match=r"toy\.tsv was changed while the run was reading it. Start the run again"):
        sample.images[0].load()


def test_pictures_longer_than_the_csv_default_limit(tmp_path: Path) -> None:
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    Image.fromarray(noise).save(stream, "PNG")
    encoded = base64.b64encode(stream.getvalue()).decode()
    assert len(encoded) > 131_072
    (sample,) = read(tmp_path, mcq("1", image=encoded))
    csv.field_size_limit(131_072)  # as in a fresh process
    assert np.array_equal(sample.images[0].load(), noise)


def test_sources_travel_to_other_processes(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, mcq("1"))
    copy = pickle.loads(pickle.dumps(sample.images[0]))  # noqa: S301
    assert np.array_equal(copy.load(), sample.images[0].load())


def test_the_digest_covers_the_image_files(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(png(1))
    path = write(tmp_path / "toy.tsv", [mcq("1", image="", image_path="one.png")])
    before = opened(path).digest
    assert opened(path).digest == before != file_digest(path)
    (tmp_path / "one.png").write_bytes(png(2))
    assert opened(path).digest != before


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path / "absent.tsv")
    assert dataset.name == "absent"
    with pytest.raises(DatasetError, match=r"absent\.tsv cannot be read: No such file"):
        dataset.samples()


def test_reading_twice_gives_the_same_samples_and_warns_once(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "toy.tsv", [mcq("1", A="None")]))
    with pytest.warns(DatasetWarning):
        first = dataset.samples()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset.samples() is first


def test_compat_refuses_a_row_that_vlmevalkit_leaves_without_options(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="expected one option at least that VLMEvalKit does not drop"):
        read(tmp_path, mcq("1", A="None", B="NA"), compat="vlmevalkit")


@pytest.mark.cases(
    ("cells", "shown"),
    [
        (["1", "03", "+5", " 8"], ["1", "3", "5", "8"]),
        (["12", "None"], ["12.0", None]),
        (["1", "", "2"], ["1.0", None, "2.0"]),
        (["1", "2.50", "1e3", ".5", "5.", "inf"], ["1.0", "2.5", "1000.0", "0.5", "5.0", "inf"]),
        (["TRUE", "false", "tRue", ""], ["True", "False", "True", None]),
        (["True", "cat", "None"], ["True", "cat", None]),
        (["1", "True"], ["1", "True"]),
        (["1", "cat", "NA"], ["1", "cat", None]),
        (["1,000", "2"], ["1,000", "2"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        (["N/A", "null", "nan", "#N/A N/A"], [None, None, None, None]),
        (["none", "NONE", "Na"], ["none", "NONE", "Na"]),
    ],
)
def test_a_column(cells: list[str], shown: list[str | None]) -> None:
    assert as_vlmevalkit_shows(cells) == shown
