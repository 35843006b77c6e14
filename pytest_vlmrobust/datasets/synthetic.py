"""Small files in the layout of each benchmark, with drawn images, for tests and to try a gate before the data are available.

The columns are those that VLMEvalKit reads. The questions ask for the colour or the form of a drawn shape and measure
nothing.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_vlmrobust.core.errors import UnknownName

from .drafts import LETTERS

COLOURS = ("red", "green", "blue", "yellow")
FORMS = ("square", "circle")
WORDS = (*COLOURS, "black", "white", "orange", "purple", "brown", "pink")
RUNGS = range(112, 1345, 112)
_GROUND = (235, 235, 235)


@dataclass(frozen=True, slots=True)
class _Row:
    cells: Mapping[str, str]
    pictures: tuple[bytes, ...] = ()
    same_as: str = ""
    """The index of the row with the image that this row refers to."""


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    rows: Callable[[], Iterator[_Row]] = field(repr=False)


def layouts() -> tuple[str, ...]:
    """Returns the benchmarks that a file can be written for."""
    return tuple(_FILES)


def write(benchmark: str, folder: Path, *, pictures_apart: bool = False) -> Path:
    """Writes a small TSV in the layout of a benchmark and returns its path.

    ``benchmark`` is one of ``layouts()``. With ``pictures_apart``, ``NAME_local.tsv`` has paths, and the images go to
    ``images/NAME_local``, as VLMEvalKit does with files above 1 GB.
    """
    if benchmark not in _FILES:
        raise UnknownName("layout", benchmark, _FILES)
    file = _FILES[benchmark]
    name = f"{file.name}_local" if pictures_apart else file.name
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(file.rows())
    cells = _with_paths(rows, folder / "images" / name) if pictures_apart else [_with_pictures(row) for row in rows]
    path = folder / f"{name}.tsv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        columns = list(dict.fromkeys(column for row in cells for column in row))
        writer = csv.DictWriter(stream, columns, delimiter="\t", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)
    return path


def picture(number: int, *, size: tuple[int, int] = (96, 72), shade: int = 0) -> bytes:
    """Returns a PNG of one shape: its colour and form follow from ``number``; ``shade`` distinguishes equal shapes."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", size, tuple(level - shade % 64 for level in _GROUND))
    draw = ImageDraw.Draw(image)
    box = (size[0] // 4, size[1] // 4, 3 * size[0] // 4, 3 * size[1] // 4)
    (draw.ellipse if form(number) == "circle" else draw.rectangle)(box, fill=colour(number))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def colour(number: int) -> str:
    """Returns the colour of the shape in ``picture(number)``."""
    return COLOURS[number % len(COLOURS)]


def form(number: int) -> str:
    """Returns the form of the shape in ``picture(number)``."""
    return FORMS[number // len(COLOURS) % len(FORMS)]


def _with_pictures(row: _Row) -> dict[str, str]:
    texts = [base64.b64encode(data).decode() for data in row.pictures]
    return {**row.cells, "image": row.same_as or (str(texts) if len(texts) > 1 else "".join(texts))}


def _with_paths(rows: Sequence[_Row], folder: Path) -> list[dict[str, str]]:
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, list[str]] = {}
    for row in rows:
        index = row.cells["index"]
        names[index] = [f"{index}_{position}.png" for position in range(len(row.pictures))]
        for name, data in zip(names[index], row.pictures, strict=True):
            (folder / name).write_bytes(data)
    paths = (names[row.same_as or row.cells["index"]] for row in rows)
    return [
        {**row.cells, "image_path": str(files) if len(files) > 1 else "".join(files)}
        for row, files in zip(rows, paths, strict=True)
    ]


def _choices(
    of: Sequence[str] = COLOURS, *, count: int = 8, pictures: int = 1, **cells: Callable[[int], str] | str
) -> Iterator[_Row]:
    for number in range(count):
        turned = [of[(number // 2 + step) % len(of)] for step in range(len(of))]
        more = {column.replace("__", "-"): text(number) if callable(text) else text for column, text in cells.items()}
        question = "Which colour is the shape?" if pictures == 1 else "Which colour is the shape in <image 1>?"
        cells_of_row = {"index": str(number), "question": question, **dict(zip(LETTERS, turned, strict=False))}
        drawn = tuple(picture(number + step, shade=number) for step in range(pictures))
        yield _Row({**cells_of_row, "answer": LETTERS[turned.index(colour(number))], **more}, drawn)


def _mmmu() -> Iterator[_Row]:
    for number, row in enumerate(_choices(pictures=2, category="Art", split="validation", l2__category="Art_and_Design")):
        split = "dev" if number == 0 else "validation"
        named = {**row.cells, "index": f"{split}_Art_{number}", "split": split}
        opened = dict.fromkeys("ABCD", "") | {"answer": colour(number)}
        yield replace(row, cells=named | opened if number == 5 else named)


def _science() -> Iterator[_Row]:
    for number, row in enumerate(_choices(category="physics", hint="Light is a wave.")):
        yield replace(row, pictures=()) if number == 3 else row


def _yes_no(ask: str = "Is the shape {}?", ending: str = "", **cells: str) -> Iterator[_Row]:
    for number in range(8):
        right = number % 3 > 0
        named = colour(number if right else number + 1)
        cells_of_row = {"index": str(number), "question": ask.format(named) + ending, "answer": "Yes" if right else "No"}
        yield _Row(
            {**cells_of_row, **{key: text.format(number) for key, text in cells.items()}}, (picture(number, shade=number),)
        )


def _hallusion() -> Iterator[_Row]:
    for number, row in enumerate(_yes_no(ending=" Please answer yes or no.")):
        figure, question = divmod(number, 2)
        where = {"category": "VD", "l2-category": "illusion", "index": f"VD_illusion_1_0_{figure}_{question}"}
        yield _Row({**row.cells, **where}, (picture(figure),))
    bare = {"index": "VS_chart_0_1_0_0", "question": "Is it more?", "answer": "No", "category": "VS", "l2-category": "chart"}
    yield _Row(bare)


def _mme() -> Iterator[_Row]:
    rows = list(_yes_no(ending=" Please answer yes or no.", category="color", image_path="color/{}.jpg"))
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        shared = {"image_path": first.cells["image_path"]}
        yield first
        yield _Row(
            {**second.cells, **shared, "question": "Is there a shape? Please answer yes or no.", "answer": "Yes"},
            (),
            first.cells["index"],
        )


def _open(
    column: str, answer: Callable[[int], str], *, question: str = "Which colour is the shape?", **cells: str
) -> Iterator[_Row]:
    for number in range(8):
        cells_of_row = {"index": str(number), **({"question": question} if question else {}), column: answer(number)}
        yield _Row({**cells_of_row, **cells}, (picture(number, shade=number),))


def _chart() -> Iterator[_Row]:
    for number, row in enumerate(_open("answer", lambda number: str(number * 10), question="What is the value?")):
        yield replace(row, cells={**row.cells, "split": "test_human" if number % 2 else "test_augmented"})


def _ten_answers(number: int) -> str:
    return str([colour(number)] * 7 + ["unanswerable"] * 3)


def _captions(number: int) -> str:
    return str([f"{start} {colour(number)} {form(number)}." for start in ("A", "One", "There is a", "It shows a", "Some")])


def _circular() -> Iterator[_Row]:
    for row in _choices(count=3, category="colour", l2__category="perception", hint=""):
        texts = [row.cells[letter] for letter in "ABCD"]
        right = texts["ABCD".index(row.cells["answer"])]
        for turn in range(4):
            turned = texts[turn:] + texts[:turn]
            index = row.cells["index"]
            cells = {**row.cells, **dict(zip("ABCD", turned, strict=True)), "answer": "ABCD"[turned.index(right)]}
            cells["index"] = str(int(index) + turn * 1_000_000)
            yield _Row(cells, () if turn else row.pictures, index if turn else "")


def _resbench() -> Iterator[_Row]:
    questions = (
        ("MCQ", "Which colour is the shape?\nA. red\nB. green\nC. blue\nD. yellow", "A", "perception", "IS"),
        ("VQA", "What does the sign say?", "red square", "OCR", "STU"),
        ("mathQA", "How many corners has the shape?", "4", "math", "Geo"),
    )
    for number, (kind, question, answer, category, part) in enumerate(questions):
        for step, long_edge in enumerate(RUNGS):
            cells = {"index": str(number * len(RUNGS) + step), "question": question, "answer": answer, "prediction": ""}
            categories = {"l1-category": category, "l2-category": part, "resolution": str(long_edge), "question_type": kind}
            yield _Row({**cells, **categories}, (picture(0, size=(long_edge, long_edge * 3 // 4), shade=number),))


_FILES: Mapping[str, _File] = {
    "AI2D": _File("AI2D_TEST", _choices),
    "BLINK": _File("BLINK", lambda: _choices(COLOURS[:2], count=2, pictures=2, category="Relative_Reflectance")),
    "MMMU": _File("MMMU_DEV_VAL", _mmmu),
    "MMMU-Pro": _File("MMMU_Pro_10c", lambda: _choices(WORDS, pictures=3, category="Art")),
    "MMStar": _File("MMStar", lambda: _choices(category="coarse perception", l2__category="image emotion")),
    "RealWorldQA": _File("RealWorldQA", lambda: _choices(COLOURS[:3], count=3)),
    "ScienceQA": _File("ScienceQA_VAL", _science),
    "AMBER": _File("AMBER", lambda: _yes_no(category="discriminative-attribute-state", image_path="AMBER_{}.jpg")),
    "HallusionBench": _File("HallusionBench", _hallusion),
    "MME": _File("MME", _mme),
    "POPE": _File("POPE", lambda: _yes_no(ending=" Please answer yes or no.", category="adversarial")),
    "ChartQA": _File("ChartQA_TEST", _chart),
    "GQA": _File("GQA_TestDev_Balanced", lambda: _open("answer", colour)),
    "TextVQA": _File("TextVQA_VAL", lambda: _open("answer", _ten_answers)),
    "VizWiz": _File("VizWiz", lambda: _open("answers", _ten_answers)),
    "COCO captions": _File("COCO_VAL", lambda: _open("answer", _captions, question="")),
    "MMBench": _File("MMBench_DEV_EN", _circular),
    "Res-Bench": _File("ResBench", _resbench),
}
