"""A folder of a user's own identities: what is read, what is refused, and who is whose neighbour."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image

from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets.faces_folder import FaceFolder, circles, nearest, pixel_features, unit_rows, write_table

People = Callable[..., Path]
Face = Callable[..., NDArray[np.uint8]]
BOXES = {
    "left_eye": (26.0, 34.0, 42.0, 46.0),
    "right_eye": (54.0, 34.0, 70.0, 46.0),
    "nose": (42.0, 44.0, 54.0, 60.0),
    "mouth": (34.0, 66.0, 62.0, 78.0),
}
TEXTS = {name: ",".join(f"{edge:g}" for edge in box) for name, box in BOXES.items()}


def read(folder: Path) -> FaceFolder:
    return FaceFolder(folder, folder.name)


def refused(folder: Path) -> list[str]:
    """Returns the lines of the error that reading a folder raises."""
    with pytest.raises(DatasetError) as caught:
        read(folder).entities()
    return str(caught.value).splitlines()


def append(folder: Path, *rows: str) -> Path:
    with (folder / "faces.csv").open("a", encoding="utf-8") as stream:
        stream.writelines(f"{row}\n" for row in rows)
    return folder


def boxes(**changed: str) -> str:
    return ",".join(f'"{text}"' if text else "" for text in {**TEXTS, **changed}.values())


def names(pictures: tuple[ImageSource, ...], folder: FaceFolder) -> list[str]:
    by_identity = {entity.image.identity(): entity.id for entity in folder.entities()}
    return [by_identity[picture.identity()] for picture in pictures]


def test_what_a_table_says(people: People) -> None:
    folder = read(people(["light", "dark", "light"]))
    first, second, _ = folder.entities()
    assert (first.id, first.label, first.group, first.category, first.size) == ("p0", "p0", "light", "", (96, 96))
    assert first.boxes == BOXES
    assert second.group == "dark"
    assert first.image.load().shape == (96, 96, 3)
    assert (folder.name, folder.domain, folder.hinted, folder.native_long_edge) == ("people", "face", "nose", 96)
    assert (folder.notes, folder.neighbours_by) == ((), "pixel statistics 1")


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    folder = read(tmp_path / "absent")
    assert repr(folder) == f"FaceFolder({str(tmp_path / 'absent')!r}, 'absent')"
    with pytest.raises(DatasetError, match=r"absent holds no faces\.csv: expected the table"):
        folder.entities()


def test_blanks_blank_lines_subfolders_and_a_byte_order_mark(people: People) -> None:
    folder = people(["light"])
    (folder / "more").mkdir()
    (folder / "0.png").rename(folder / "more" / "0 0.png")
    text = f"\ufeff\nfile, identity ,{','.join(TEXTS)}\n\n  more/0 0.png , Ann ,  {boxes()}\n,,,,,\n"
    (folder / "faces.csv").write_text(text, encoding="utf-8")
    (entity,) = read(folder).entities()
    assert (entity.label, entity.boxes) == ("Ann", BOXES)


@pytest.mark.parametrize(
    ("identity", "expected"),
    [("Ann", "Ann"), ("Ann B.", "Ann-B-e2214cff"), ("李", "c16667ca"), ("a_b-C9", "a_b-C9")],
)
def test_ids_are_safe_and_stay_apart(people: People, identity: str, expected: str) -> None:
    folder = people(["light"])
    table = folder / "faces.csv"
    table.write_text(table.read_text().replace("p0", f'"{identity}"'), encoding="utf-8")
    (entity,) = read(folder).entities()
    assert (entity.id, entity.label) == (expected, identity)


def test_all_malformed_rows_are_named_at_once(people: People, face: Face) -> None:
    folder = people(["light", "light"])
    for name in ("small", "turned"):
        Image.fromarray(face(7, edge=96 if name == "turned" else 63)).save(folder / f"{name}.png")
    Image.fromarray(face(8)[:, :90]).save(folder / "narrow.png")
    (folder / "text.png").write_text("no image")
    whole = (folder / "1.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    append(
        folder,
        f"9.png,a,light,{boxes()}",
        f"small.png,b,light,{boxes()}",
        f"narrow.png,c,light,{boxes()}",
        f"text.png,d,light,{boxes()}",
        f"cut.png,e,light,{boxes()}",
        f"0.png,f,light,{boxes()}",
        f"turned.png,p1,Light,{boxes(left_eye=TEXTS['right_eye'], right_eye=TEXTS['left_eye'])}",
    )
    first, *lines = refused(folder)
    assert first == f"{folder / 'faces.csv'} has 9 problems; fix or remove these rows:"
    at = f"  {folder / 'faces.csv'}"
    # what the table says comes first, then what the pictures say
    assert lines[0] == (
        f"{at}:4, file '9.png', column 'file': found '9.png', expected an image; there is no file {folder / '9.png'}. "
        "Did you mean '1.png'?"
    )
    assert lines[1] == f"{at}:9, file '0.png', column 'file': found '0.png', expected an image of its own: line 2 has this one"
    assert lines[2].startswith(
        f"{at}:10, file 'turned.png', column 'identity': found 'p1', expected one image of each identity: line 3"
    )
    assert lines[3] == f"{at}:10, file 'turned.png', column 'group': found 'Light', expected 'light', as it is spelled in line 2"
    assert lines[4] == f"{at}:5, file 'small.png', column 'file': found '63 x 63 pixels', expected 64 x 64 pixels or more"
    assert lines[5].startswith(f"{at}:7, file 'text.png', column 'file': {folder / 'text.png'}: 8 bytes starting 6e6f20")
    assert lines[6].startswith(f"{at}:8, file 'cut.png', column 'file': {folder / 'cut.png'}: ")
    assert "cannot be decoded" in lines[6]
    assert "a box left of right_eye, (26.0, 34.0, 42.0, 46.0): left and right are the viewer's" in lines[7]
    assert lines[8].startswith(
        f"{at}:6, file 'narrow.png', column 'file': found '90 x 96 pixels', expected 96 x 96 pixels as in most"
    )
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("cells", "value", "expected"),
    [
        ({"nose": ""}, "None", "a box too, as 'left_eye' has one: all of them, or none"),
        ({"nose": "1,2,3"}, "'1,2,3'", "x1,y1,x2,y2 in pixels, with x1 < x2 and y1 < y2"),
        ({"nose": "1,2,x,3,4"}, "'1,2,x,3,4'", "x1,y1,x2,y2 in pixels"),
        ({"nose": "1,2,nan,4"}, "'1,2,nan,4'", "x1,y1,x2,y2 in pixels"),
        ({"nose": "30,2,10,4"}, "'30,2,10,4'", "x1,y1,x2,y2 in pixels, with x1 < x2 and y1 < y2"),
        ({"nose": "10,4,30,4"}, "'10,4,30,4'", "x1,y1,x2,y2 in pixels, with x1 < x2 and y1 < y2"),
        ({"nose": "-1,2,3,4"}, "(-1.0, 2.0, 3.0, 4.0)", "a box inside of the image, which has 96 x 96 pixels"),
        ({"mouth": "1,2,3,96.5"}, "(1.0, 2.0, 3.0, 96.5)", "a box inside of the image, which has 96 x 96 pixels"),
    ],
)
def test_boxes_that_are_none(people: People, cells: dict[str, str], value: str, expected: str) -> None:
    folder = people(["light"])
    table = folder / "faces.csv"
    table.write_text(f"file,identity,{','.join(TEXTS)}\n0.png,a,{boxes(**cells)}\n")
    _, line = refused(folder)
    assert line.startswith(f"  {table}:2, file '0.png', column '{next(iter(cells))}': found {value}, expected {expected}")


def test_a_box_may_fill_the_picture(people: People) -> None:
    folder = people(["light"])
    (folder / "faces.csv").write_text(f"file,identity,{','.join(TEXTS)}\n0.png,a,{boxes(mouth='0,0,96,96')}\n")
    assert read(folder).entities()[0].boxes["mouth"] == (0, 0, 96, 96)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            "file,identity,gruop",
            "column 'gruop': found 'gruop', expected no such column. Did you mean 'group'? Known: file, identity, group",
        ),
        ("file;identity;group", "expected columns separated by commas. The file seems to have ';' between them"),
        ("file,identity,file", "column 'file': found 'file', expected each column once"),
        ("file,name", "column 'identity': found None, expected this column: it is required"),
        (
            "file,identity,word",
            "column 'word': found 'word', expected no such column. Known: file, identity, group, category, left_eye",
        ),
        ("", "column 'file': found None, expected this column: it is required"),
    ],
)
def test_headers(people: People, header: str, expected: str) -> None:
    folder = people([])
    (folder / "faces.csv").write_text(f"{header}\n0.png,a,b\n" if header else "")
    assert any(
        line.startswith(f"  {folder / 'faces.csv'}:1, the header, {expected}") or expected in line for line in refused(folder)
    )


def test_rows_of_another_length_and_without_what_is_required(people: People) -> None:
    folder = append(people(["light"]), "0.png,b,light,1,2,3,4,5", f",c,light,{boxes()}")
    _, long, bare = refused(folder)
    row = "['0.png', 'b', 'light', '1', '2', '3', '4', '5']"
    assert long.endswith(f"column '(all)': found {row}, expected 7 values as in the header; put boxes in double quotes")
    assert ":4, the row, column 'file': found None, expected a value: this column is required" in bare


def test_a_quote_that_does_not_close_and_another_encoding(people: People) -> None:
    (line,) = refused(append(people(["light"]), '0.png,"b,light,,,,'))
    assert "faces.csv:3 is not a row of comma-separated values (unexpected end of data)." in line
    folder = people(["light"], "other")
    table = folder / "faces.csv"
    table.write_bytes(table.read_bytes() + "0.png,é,,,,,\n".encode("latin-1"))
    assert "faces.csv:3 is not UTF-8" in refused(folder)[0]


def test_an_empty_table(people: People) -> None:
    assert "faces.csv has no rows: expected one for each image" in refused(people([]))[0]


def test_one_picture_under_two_names(people: People) -> None:
    folder = people(["light"])
    Image.open(folder / "0.png").save(folder / "copy.bmp")
    _, line = refused(append(folder, f"copy.bmp,b,light,{boxes()}"))
    assert "column 'file': found 'copy.bmp', expected another image than line 2: every pixel is the same" in line


def test_a_url_is_not_downloaded(people: People) -> None:
    _, line = refused(append(people(["light"]), f"https://host/a.png,b,light,{boxes()}"))
    assert "(nothing is downloaded: save the image in the folder)" in line


def test_a_small_file_of_a_hundred_megapixels(people: People) -> None:
    folder = people(["light"])
    header = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    (folder / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT\x35\xaf\x06\x1e")
    append(folder, f"bomb.png,b,light,{boxes()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of it too
        _, line = refused(folder)
    assert "bomb.png" in line
    assert "10000 x 10000 pixels are more than 89478485" in line


def test_rows_without_groups_among_others_are_noted_and_nothing_is_warned_of(people: People) -> None:
    folder = append(people(["light", "light"]), "2.png,c,,,,,")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)).save(folder / "2.png")
    collection = read(folder)
    entities = collection.entities()
    table = folder / "faces.csv"
    assert collection.notes == (f"{table}: 1 of 3 rows have no group (the first: {table}:4, file '2.png')",)
    assert collection.how_to_add_boxes.startswith(
        f"Write the boxes (left_eye, right_eye, nose, mouth) into {table}, or name MediaPipe's model file as `landmarks` in "
        "faces.yaml (pip install 'mediapipe>="
    )
    assert (entities[2].group, entities[2].boxes) == ("", {})


def test_no_boxes_and_no_groups_at_all_are_as_they_should_be(people: People) -> None:
    collection = read(people(["", "", ""], boxes=False))
    assert [entity.boxes for entity in collection.entities()] == [{}] * 3
    assert len(collection.neighbours(collection.entities()[0], 2)) == 2
    assert collection.notes == ()


def test_neighbours_look_alike_and_are_the_same_every_time(people: People, face: Face) -> None:
    folder = people(["light"] * 5, boxes=False)
    like = face(2, 210).astype(int)
    like[10:20, 40:60] += 3
    Image.fromarray(np.clip(like, 0, 255).astype(np.uint8)).save(folder / "4.png")
    collection = read(folder)
    entity = collection.entities()[2]
    neighbours = names(collection.neighbours(entity, 4), collection)
    assert neighbours[0] == "p4"
    assert sorted(neighbours) == ["p0", "p1", "p3", "p4"]
    assert names(read(folder).neighbours(entity, 4), collection) == neighbours
    assert names(collection.neighbours(entity, 2), collection) == neighbours[:2]


def test_the_group_does_not_tell_which_candidate_is_meant(people: People) -> None:
    """A guesser that sees nothing but the groups of the three faces is right in a third of the cases, whatever it goes by."""
    collection = read(people(["light"] * 5 + ["dark"] * 3))
    entities = {entity.id: entity for entity in collection.entities()}
    candidates = [
        [entity.group, *(entities[name].group for name in names(collection.neighbours(entity, 2), collection))]
        for entity in entities.values()
    ]
    assert [Counter(groups) for groups in candidates] == [Counter({groups[0]: 3}) for groups in candidates]
    assert guessed_by_group(candidates) == {"more frequent": 1 / 3, "less frequent": 1 / 3, "light": 1 / 3, "dark": 1 / 3}


def test_the_guesser_finds_out_where_groups_do_tell() -> None:
    """One neighbour of each group, which the group of the target then outnumbers."""
    one_of_each = [[group, "light", "dark"] for group in ["light"] * 4 + ["dark"] * 4]
    assert guessed_by_group(one_of_each)["more frequent"] == 1 / 2


def guessed_by_group(candidates: list[list[str]]) -> dict[str, float]:
    """Returns how often guessers find the first of some candidates who know their groups only."""

    def accuracy(score: Callable[[str, Counter[str]], int]) -> float:
        hits = 0.0
        for groups in candidates:
            points = [score(group, Counter(groups)) for group in groups]
            hits += (points[0] == max(points)) / points.count(max(points))
        return hits / len(candidates)

    return {
        "more frequent": accuracy(lambda group, among: among[group]),
        "less frequent": accuracy(lambda group, among: -among[group]),
        "light": accuracy(lambda group, _: group == "light"),
        "dark": accuracy(lambda group, _: group == "dark"),
    }


def test_a_group_that_is_too_small_takes_others_and_says_so(people: People) -> None:
    collection = read(people(["light", "light", "dark", "light", "dark"]))
    dark = collection.entities()[2]
    neighbours = names(collection.neighbours(dark, 2), collection)
    (note,) = collection.notes_on_neighbours(2)
    assert "people: 2 neighbours of the same group are wanted, and the group 'dark' has 2 members: the rest come" in note
    assert "so the group alone may give the answer away. Add people to it until it has 3" in note
    assert neighbours[0] == "p4"
    assert neighbours[1] in {"p0", "p1", "p3"}
    assert names(collection.neighbours(collection.entities()[4], 2), collection)[0] == "p2"
    assert collection.notes_on_neighbours(1) == ()
    assert names(collection.neighbours(dark, 1), collection) == ["p4"]
    assert (
        "3 neighbours of the same group are wanted, and the group 'light' has 3 members" in collection.notes_on_neighbours(3)[1]
    )


def test_a_group_of_one(people: People) -> None:
    collection = read(people(["light", "light", "dark", "light"]))
    assert "the group 'dark' has 1 member: the rest come from other groups" in collection.notes_on_neighbours(2)[0]
    assert len(collection.neighbours(collection.entities()[2], 2)) == 2


def test_those_without_a_group_are_one_too_and_a_single_group_tells_nothing(people: People) -> None:
    (note,) = read(people(["light", "light", "", "light"])).notes_on_neighbours(2)
    assert "and the group of those for whom none is given has 1 member: the rest come" in note
    assert read(people(["light", "light"], "alike")).notes_on_neighbours(2) == ()


@pytest.mark.parametrize("again", ["P0", "p0 ", "\uff50\uff10"], ids=["case", "blank", "wide"])
def test_names_that_a_reader_takes_for_one_are_one_identity(people: People, again: str) -> None:
    folder = people(["light"] * 3)
    table = folder / "faces.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("p2", again), encoding="utf-8")
    _, line = refused(folder)
    assert f"column 'identity': found {again.strip()!r}, expected one image of each identity: line 2 has one already" in line
    assert ("case, blanks and Unicode forms tell nobody apart" in line) == (again.strip() != "p0")


def test_shares_of_the_picture_are_no_pixels(people: People) -> None:
    _, line = refused(append(people(["light"]), f"0.png,b,light,{boxes(nose='0.4,0.4,0.6,0.7')}"))[:2]
    assert (
        "column 'nose': found '0.4,0.4,0.6,0.7', expected a box of one pixel or more in width and height: edges are in " in line
    )


def test_names_of_files_that_no_file_can_have(people: People) -> None:
    folder = people(["light"])
    lines = "\n".join(refused(append(folder, f"{'a' * 300},a,,,,,", ".,b,,,,,")))
    assert f"expected an image; {folder / ('a' * 300)} cannot be looked at: File name too long." in lines
    assert f"column 'file': found '.', expected an image; {folder} is a folder." in lines


def test_pictures_that_viewers_turn_are_noted(people: People) -> None:
    folder = people(["light"] * 3)
    with Image.open(folder / "1.png") as picture:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = 6
        picture.save(folder / "1.png", exif=exif)
    (note,) = read(folder).notes
    assert note.startswith(f"{folder / 'faces.csv'}: 1 of 3 images have an EXIF orientation, which is no")
    assert note.endswith(f"(the first: {folder / 'faces.csv'}:3, file '1.png'). Save them upright")


def test_too_few_identities_and_somebody_else(people: People) -> None:
    collection = read(people(["light", "light"]))
    with pytest.raises(DatasetError, match="people has 2 identities: expected 3 or more, for 2 neighbours"):
        collection.neighbours(collection.entities()[0], 2)
    other = read(people(["light"] * 3, "others")).entities()[2]
    with pytest.raises(DatasetError, match=r"people has no identity 'p2': pass one of its entities\(\)"):
        collection.neighbours(other, 1)


def test_the_digest_is_that_of_what_is_asked(people: People) -> None:
    folder = people(["light"] * 3)
    before = read(folder).digest
    (folder / "2.png").rename(folder / "two.png")
    table = folder / "faces.csv"
    table.write_text(table.read_text().replace("2.png", "two.png"))
    assert read(folder).digest == before
    table.write_text(table.read_text().replace("42,44,54,60", "42,44,54,61", 1))
    moved = read(folder).digest
    (folder / "faces.yaml").write_text("hinted: mouth\n")
    hinted = read(folder).digest
    Image.fromarray(np.zeros((96, 96, 3), np.uint8)).save(folder / "1.png")
    assert len({before, moved, hinted, read(folder).digest}) == 4


def test_words_have_one_box_and_their_corner_is_told(people: People) -> None:
    folder = people(["", ""], boxes=False)
    (folder / "faces.yaml").write_text("domain: word\n")
    (folder / "faces.csv").write_text('file,identity,category,word\n0.png,cat,animal,"1,2,30,40.5"\n1.png,car,,"2,2,9,9"\n')
    collection = read(folder)
    assert (collection.domain, collection.hinted) == ("word", "corner")
    assert [entity.boxes for entity in collection.entities()] == [{"word": (1, 2, 30, 40.5)}, {"word": (2, 2, 9, 9)}]
    assert collection.entities()[0].category == "animal"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("domain: face\nencodr: x", ":2: unknown key 'encodr' in the file. Did you mean 'encoder'? Known: domain, hinted"),
        ("domain: dog", ":1: domain is the text 'dog'. Expected one of face, word."),
        ("hinted: noze", ":1: hinted is the text 'noze'. Expected one of nose, left_eye, right_eye, mouth. Did you mean 'nose'?"),
        ("domain: word\nhinted: nose", ":2: hinted is the text 'nose'. Expected one of corner."),
        ("domain: word\nlandmarks: x.task", ":2: landmarks is the text 'x.task'. Expected no such key where the domain is not"),
        ("hinted: nose\ndomain: face\nhinted: mouth", ":3: hinted is written twice, first in line 1. Keep one of them"),
        ("- face", ":1: the file is a list. Expected a mapping with the keys domain, hinted, landmarks, encoder, groupings"),
        ("", ": the file is empty. Expected keys and values; known keys: domain, hinted, landmarks, encoder, groupings"),
        (
            "groupings: [sex, group]",
            ":1: groupings[2] is the text 'group'. Expected the name of a column of its own, such as sex",
        ),
        ("groupings: nose", ":1: groupings is the text 'nose'. Expected the name of a column of its own"),
        ("groupings: [sex, age, sex]", ":1: groupings[3] is the text 'sex'. Expected each column once"),
        ("groupings: []", ":1: groupings is a list. Expected a single value"),
        ("encoder:", ":1: encoder is empty. Expected text"),
        ("landmarks: 7", ":1: landmarks is '7'. Expected text: put it in quotes, '7'"),
        ("encoder: " + 300 * "x", "xxx...'. Expected a path that this machine can have (File name too long)"),
        (
            "encoder: ./clip",
            ":1: encoder is the text './clip'. Expected the folder of a checkpoint, or ID[@REVISION] of the hub; there is no",
        ),
        ("encoder: a/b/c", ":1: encoder is the text 'a/b/c'. Expected the folder of a checkpoint"),
        ("a: [", ":1: not YAML: "),
    ],
)
def test_settings_that_make_no_sense(people: People, text: str, expected: str) -> None:
    folder = people(["light"])
    (folder / "faces.yaml").write_text(text)
    (problem,) = refused(folder)
    assert problem.startswith(f"{folder / 'faces.yaml'}:")
    assert expected in problem


def grouped(folder: Path, *columns: str) -> FaceFolder:
    """Returns a folder whose table has further columns: the header and the cells of each row."""
    table = folder / "faces.csv"
    lines = zip(table.read_text().splitlines(), columns, strict=True)
    table.write_text("".join(f"{line},{more}\n" for line, more in lines))
    (folder / "faces.yaml").write_text("groupings: [sex, age]\n")
    return read(folder)


def test_people_are_grouped_by_columns_that_the_settings_name(people: People, tmp_path: Path) -> None:
    folder = people(["light", "dark", "dark"])
    before = read(folder).digest
    collection = grouped(folder, "age,sex", "old,f", "young,", "old,m")
    assert [entity.groupings for entity in collection.entities()] == [
        {"sex": "f", "age": "old"},
        {"age": "young"},
        {"sex": "m", "age": "old"},
    ]
    assert collection.notes == (
        f"{folder / 'faces.csv'}: 1 of 3 rows have no sex (the first: {folder / 'faces.csv'}:3, file '1.png')",
    )
    assert collection.digest != before
    write_table(folder, folder / "new.csv")
    assert (folder / "new.csv").read_text().splitlines()[2].startswith("1.png,p1,dark,,,young,")
    (folder / "faces.yaml").unlink()
    assert "column 'age': found 'age', expected no such column." in refused(folder)[1]


def test_a_group_that_is_spelled_in_two_ways_is_refused_in_each_grouping(people: People) -> None:
    folder = people(["light", "dark", "dark"])
    grouped(folder, "sex,age", "F,F", "f,f", "m,F")
    assert [line.partition("column ")[2] for line in refused(folder)[1:]] == [
        "'sex': found 'f', expected 'F', as it is spelled in line 2",
        "'age': found 'f', expected 'F', as it is spelled in line 2",
    ]


def test_settings_under_another_suffix_are_not_passed_over(people: People) -> None:
    folder = people(["light"])
    (folder / "faces.yml").write_text("hinted: mouth")
    assert "faces.yml is not read. Rename it to faces.yaml" in refused(folder)[0]


def test_a_table_that_is_written_says_the_same(people: People, tmp_path: Path) -> None:
    folder = people(["light", "dark", "dark"])
    table = folder / "faces.csv"
    table.write_text(table.read_text().replace("42,44,54,60", "42.125,44,54.0625,60", 1).replace("p1", '"Ann, ""B"""'))
    before = read(folder).digest
    write_table(folder, tmp_path / "faces.csv")
    assert (tmp_path / "faces.csv").read_text().splitlines()[1] == (
        'people/0.png,p0,light,,"26,34,42,46","54,34,70,46","42.125,44,54.0625,60","34,66,62,78"'
    )
    assert read(tmp_path).digest == before
    with pytest.raises(UsageError, match=r"cannot be written: File exists\. Give the path of a file that is not there"):
        write_table(folder, tmp_path / "faces.csv")


def test_a_home_directory_that_there_is_not_is_a_mistake(tmp_path: Path) -> None:
    for folder, table in (("~nobody-has-this-name/x", tmp_path / "x.csv"), (tmp_path, "~nobody-has-this-name/x.csv")):
        with pytest.raises(UsageError, match="there is no home directory of '~nobody-has-this-name'"):
            write_table(folder, table)


# What pictures are compared by, and in which order others come.


def test_features_are_two_unit_vectors_and_do_not_depend_on_the_size() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    features = pixel_features(picture)
    assert features.shape == (16 * 16 * 3 + 8**3,)
    assert features.dtype == np.float64
    assert np.linalg.norm(features[:768]) == pytest.approx(1)
    assert np.linalg.norm(features[768:]) == pytest.approx(1)
    larger = np.repeat(np.repeat(picture, 3, axis=0), 2, axis=1)
    np.testing.assert_allclose(pixel_features(larger), features, atol=1e-12)


def test_every_colour_has_its_place_in_the_histogram() -> None:
    """Also white and the most saturated ones, which lie at the ends of the ranges."""
    corners = np.array([[r, g, b] for r in (0, 255) for g in (0, 255) for b in (0, 255)], np.uint8)
    for colour in corners:
        histogram = pixel_features(np.full((70, 80, 3), colour, np.uint8))[768:]
        assert histogram.max() == pytest.approx(1)


def test_a_picture_of_mid_grey_has_no_layout() -> None:
    grey = np.full((64, 64, 3), 119, np.uint8)
    lightness = cv2.cvtColor((grey / 255).astype(np.float32), cv2.COLOR_RGB2LAB)[0, 0, 0]
    assert lightness == pytest.approx(50, abs=0.2)
    assert np.isfinite(pixel_features(grey)).all()


def test_a_change_of_the_layout_or_of_the_colours_makes_pictures_less_alike() -> None:
    base = np.zeros((64, 64, 3), np.uint8)
    base[:, :32] = (220, 180, 140)
    slightly, turned, other = base.copy(), base[:, ::-1].copy(), base.copy()
    slightly[:4] = 90
    other[:, :32] = (20, 90, 250)
    rows = unit_rows(np.stack([pixel_features(picture) for picture in (base, turned, slightly, other)]))
    assert nearest(rows, [""] * 4, 0)[0] == 2
    assert max((rows @ rows[0])[[1, 3]]) < 0.9 * (rows @ rows[0])[2]


def test_own_group_first_then_nearest_then_first() -> None:
    angles = np.radians([0, 40, 10, 5, 40, 3])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert nearest(rows, ["a", "a", "a", "b", "a", "b"], 0) == [2, 1, 4, 5, 3]
    assert nearest(rows, ["a"] * 6, 0) == [5, 3, 2, 1, 4]


def test_the_last_bits_of_a_processor_change_no_order() -> None:
    rows = np.array([[1.0, 0.0], [0.5, 0.5], [0.5 + 3e-7, 0.5]])
    assert nearest(rows, [""] * 3, 0) == [1, 2]


def test_rows_of_zeros_stay_as_they_are() -> None:
    rows = unit_rows(np.array([[0, 0], [3, 4]], np.float32))
    assert rows.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_circles_are_disjoint_of_one_group_and_near() -> None:
    angles = np.array([0.0, 1.5, 0.1, 1.4, 0.2, 3.0, 1.6])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert circles(rows, ["a"] * 7, 3) == [(0, 2, 4), (1, 3, 6)]
    assert circles(rows, ["a", "a", "b", "b", "b", "a", "b"], 3) == [(0, 1, 5), (2, 4, 3)]
    assert circles(rows, list("abcdefg"), 2) == []


def test_within_circles_everybody_is_in_the_middle_as_often_as_meant() -> None:
    rng = np.random.default_rng(3)
    rows = unit_rows(rng.normal(size=(60, 8)))
    hits = tries = 0
    for members in circles(rows, ["x"] * 60, 3):
        inside = rows[list(members)] @ rows[list(members)].sum(axis=0)
        for place in range(3):  # each of them is the one that is meant once
            hits += int(np.argmax(inside)) == place
            tries += 1
    assert (hits, tries) == (20, 60)
