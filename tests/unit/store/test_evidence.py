"""What a run rests on is kept whole, also for those who come after a crash."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_vlmrobust.core.boxes import BoxSpace, Localisation
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import ImageError, StoreError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.store import Answer, Evidence, StoredCell

from .conftest import Execute, forge

CELL = Cell("tiny", "faces.matching", Setting.parse("fog:mid"))
SAMPLES = (
    Sample(
        "s1",
        (None,),  # type: ignore[arg-type]  # evidence keeps only how many there were
        "which?",
        "B",
        "choice",
        {"A": "caf\u00e9", "B": "x"},
        changed_by=frozenset({"colour", "left_right"}),
        keys={"position": "[0,1]"},
        perturbed=(0,),
        seeded_by="e1",
    ),
    Sample(
        "s2",
        (),
        "where?",
        ("a", "b"),
        "boxes",
        localisation=Localisation((10, 20), {"nose": (1, 2, 3, 4.5)}, {"eye": (0, 0, 1, 1)}),
    ),
)
ANSWERS = (
    Answer("k1", Prediction("B", "letter_logits", logprobs={"A": -math.inf, "B": -0.1}), Score(1.0, "letter_logits", "B")),
    Answer("k2", Prediction("", "generate", "error", error="out of memory"), Score.unscored("out of memory")),
)


def keep(evidence: Evidence, notes: dict[str, tuple[str, ...]] | None = None) -> None:
    evidence.put_samples("faces.matching", "d1", SAMPLES)
    evidence.put_cells([StoredCell(CELL, 1, ANSWERS, notes or {})])


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with evidence of one cell."""
    with Evidence.open(tmp_path) as evidence:
        keep(evidence)
    return tmp_path


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        evidence.put_samples("faces.matching", "d1", SAMPLES)
        evidence.put_cells([StoredCell(CELL, 1, ANSWERS)])
    with Evidence.open(tmp_path, read_only=True) as evidence:
        first, second = evidence.samples("faces.matching")
        stored = evidence.get_cell(CELL)
        assert evidence.cells() == [CELL]
        assert evidence.datasets() == {"faces.matching": "d1"}

    assert second == SAMPLES[1]
    assert (first.id, first.options, first.changed_by, first.keys, first.perturbed) == (
        "s1",
        SAMPLES[0].options,
        SAMPLES[0].changed_by,
        SAMPLES[0].keys,
        (0,),
    )
    assert stored.answers[0] == ANSWERS[0]
    assert stored.answers[1].prediction == ANSWERS[1].prediction
    assert math.isnan(stored.answers[1].score.value)
    assert stored.answers[1].score.state == "error"


def test_pictures_are_not_kept_and_say_so(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        evidence.put_samples("d", "x", SAMPLES)
        (image,) = evidence.samples("d")[0].images

    with pytest.raises(ImageError, match="'s1': the evidence of a run holds no images"):
        image.load()


def test_what_tells_pictures_apart_is_kept(tmp_path: Path) -> None:
    digests = {"s1": PictureDigests("aa", "bb"), "s2": PictureDigests("cc", "dd")}
    with Evidence.open(tmp_path / "run") as evidence:
        evidence.put_pictures("d", digests)
        evidence.put_pictures("d", {"s1": PictureDigests("aa", "bb")})
        assert evidence.pictures("d") == digests
        assert evidence.pictures("other") == {}
        evidence.copy_to(tmp_path / "copy")
    with Evidence.open(tmp_path / "copy", read_only=True) as copy:
        assert copy.pictures("d") == digests


def test_other_pictures_in_one_run_are_refused(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        evidence.put_pictures("d", {"s1": PictureDigests("aa", "bb"), "s2": PictureDigests("cc", "dd")})
        with pytest.raises(StoreError, match=r"the images of s2 of d were others when this run first saw them"):
            evidence.put_pictures("d", {"s1": PictureDigests("aa", "bb"), "s2": PictureDigests("ee", "ff")})


def test_pictures_are_the_same_by_their_source_or_by_their_pixels() -> None:
    digests = PictureDigests("file", "pixels")
    assert digests.same_as(PictureDigests("packed otherwise", "pixels"))
    assert digests.same_as(PictureDigests("file", "decoded by another release"))
    assert not digests.same_as(PictureDigests("other file", "other pixels"))


def test_bytes_in_the_place_of_text_are_damage(tmp_path: Path, execute: Execute) -> None:
    with Evidence.open(tmp_path) as evidence:
        evidence.put_pictures("d", {"s1": PictureDigests("aa", "bb")})
    execute("update pictures set pixels = cast(x'ff' as text)")
    with Evidence.open(tmp_path, read_only=True) as evidence, pytest.raises(StoreError, match="was changed or damaged"):
        evidence.pictures("d")


@pytest.mark.parametrize("table", ["pictures", "questions"])
def test_evidence_that_lacks_a_table_is_refused(tmp_path: Path, execute: Execute, table: str) -> None:
    Evidence.open(tmp_path).close()
    execute(f"drop table {table}")
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"lacks the table '{table}'"):
            Evidence.open(tmp_path, read_only=read_only)


def test_evidence_of_a_newer_release_is_refused(tmp_path: Path, execute: Execute) -> None:
    Evidence.open(tmp_path).close()
    execute("pragma user_version = 2")
    with pytest.raises(StoreError, match=r"has schema 2, and this release reads schema 1\. Use the release of"):
        Evidence.open(tmp_path, read_only=True)


def test_scores_alone_can_be_had_without_texts(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        keep(evidence)
        right, failed = evidence.get_scores(CELL)
        assert right == 1.0
        assert math.isnan(failed)
        with pytest.raises(StoreError, match=r"the run has no answers of tiny-faces\.matching-fog:low"):
            evidence.get_scores(replace(CELL, setting=Setting.parse("fog:low")))


def test_a_cell_that_is_evaluated_again_replaces_its_answers(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        keep(evidence)
        evidence.put_cells([StoredCell(CELL, 1, ANSWERS[:1] * 2)])
        assert evidence.get_cell(CELL).answers == ANSWERS[:1] * 2


@pytest.mark.parametrize("place", [0.5, "x"])
@pytest.mark.parametrize("table", ["answers", "samples"])
def test_a_place_that_is_no_whole_number_is_refused(kept: Path, execute: Execute, table: str, place: object) -> None:
    execute(f"update {table} set place = ? where place = 1", values=(place,))  # noqa: S608 - a name from above

    def read(evidence: Evidence, *, whole: bool) -> None:
        evidence.get_cell(CELL, whole=whole) if table == "answers" else evidence.samples(CELL.dataset)

    with Evidence.open(kept, read_only=True) as evidence:
        with pytest.raises(StoreError, match="as a place, expected whole numbers"):
            read(evidence, whole=False)
        with pytest.raises(StoreError, match=r"as a place, expected whole numbers|has answers 0 to .*, expected 0 to 1"):
            read(evidence, whole=True)


def test_what_was_not_measured_is_an_error(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        with pytest.raises(StoreError, match=r"no answers of tiny-faces\.matching-fog:mid"):
            evidence.get_cell(CELL)
        with pytest.raises(StoreError, match="asked nothing of the dataset 'other'"):
            evidence.samples("other")


def test_a_store_of_predictions_is_not_taken_for_evidence(tmp_path: Path) -> None:
    from pytest_vlmrobust.store import Store

    Store.open(tmp_path).close()
    with pytest.raises(StoreError, match="database of another program"):
        Evidence.open(tmp_path)


def test_the_copy_is_one_file_that_can_be_read_alone(tmp_path: Path) -> None:
    with Evidence.open(tmp_path / "run") as evidence:
        keep(evidence)
        evidence.copy_to(tmp_path / "report")
        evidence.copy_to(tmp_path / "report")

    assert [path.name for path in (tmp_path / "report").iterdir()] == ["predictions.sqlite"]
    with Evidence.open(tmp_path / "report", read_only=True) as copy:
        assert copy.get_cell(CELL).answers[0] == ANSWERS[0]


def test_boxes_are_asked_for_in_the_coordinates_of_each_model(tmp_path: Path) -> None:
    about = SAMPLES[1].localisation
    assert about is not None
    spoken = replace(SAMPLES[1], localisation=replace(about, space=BoxSpace("thousandths", 1000.0, 1000.0, "yx")))
    with Evidence.open(tmp_path) as evidence:
        evidence.put_samples("d", "x", [SAMPLES[0], spoken])
        evidence.put_spaces("thousands", "d", [SAMPLES[0], spoken])
        evidence.put_spaces("pixels", "d", SAMPLES)
        assert evidence.samples("d", "thousands")[1] == spoken
        assert evidence.samples("d", "pixels")[1] == evidence.samples("d")[1] == SAMPLES[1]


def test_what_determined_the_answers_is_kept(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        evidence.put_model("tiny", {"weights": "abc", "dtype": "float32"})
        evidence.put_model("tiny", {"weights": "abc", "dtype": "float32"})
        evidence.put_samples("d", "x", SAMPLES, "f1")
        assert evidence.models() == {"tiny": {"weights": "abc", "dtype": "float32"}}
        assert evidence.corpus_metric("d") == "f1"
        with pytest.raises(StoreError, match="asked nothing of the dataset 'other'"):
            evidence.corpus_metric("other")


def test_what_a_setting_could_not_do_is_kept(tmp_path: Path) -> None:
    with Evidence.open(tmp_path) as evidence:
        keep(evidence, {"s1": ("too small: 10 pixels",)})
        assert evidence.get_cell(CELL).notes == {"s1": ("too small: 10 pixels",)}


def test_halves_of_surrogate_pairs_are_kept_spelled_out(tmp_path: Path) -> None:
    text = "half \ud800"
    answers = (
        Answer("k1", Prediction(text, "generate"), Score(1.0, "open", text)),
        Answer("k2", Prediction("", "generate", "error", error=text), Score.unscored(text)),
    )
    with Evidence.open(tmp_path) as evidence:
        evidence.put_model("tiny", {"backend": text})
        evidence.put_samples("faces.matching", "d1", [replace(SAMPLES[0], question=text, category=text), SAMPLES[1]])
        evidence.put_cells([StoredCell(CELL, 1, answers, {"s1": (text,)})])
        stored = evidence.get_cell(CELL)
        assert evidence.models() == {"tiny": {"backend": text}}
        assert evidence.samples("faces.matching")[0].category == text
    assert stored.notes == {"s1": (text,)}
    assert [answer.prediction for answer in stored.answers] == [answer.prediction for answer in answers]
    assert [(answer.score.answer, answer.score.rule) for answer in stored.answers] == [
        (r"half \ud800", "open"),
        (None, r"half \ud800"),
    ]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update cells set views = 9999999999", r"fog:mid has 2 answers, expected 19999999998: 9999999999 for each of 2 samples"),
        ("update cells set views = 0", r"fog:mid has 0 views of a sample, expected one or more"),
        ("update cells set views = 'many'", r"fog:mid has 'many' views of a sample"),
        ("delete from answers where place = 1", r"fog:mid has 1 answers, expected 2: 1 for each of 2 samples"),
        ("update answers set place = 7 where place = 1", r"fog:mid has answers 0 to 7, expected 0 to 1"),
        (
            "update answers set value = 7 where place = 0",
            r"answer 0 of tiny-faces\.matching-fog:mid has the score 7\.0, expected a",
        ),
        (
            "update answers set value = 'x' where place = 0",
            r"answer 0 of tiny-faces\.matching-fog:mid has the score 'x', expected",
        ),
        ("insert into samples select dataset, 2, id, content from samples where place = 0", "has 2 answers, expected 3"),
    ],
)
def test_cells_that_no_run_writes_are_refused_by_name(kept: Path, execute: Execute, statement: str, said: str) -> None:
    execute(statement)
    with Evidence.open(kept, read_only=True) as evidence:
        for read in (evidence.get_cell, evidence.get_scores):
            with pytest.raises(StoreError, match=rf"predictions\.sqlite: .*{said}"):
                read(CELL)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update answers set state = 'fine'", "has the state 'fine', expected one of scored, unparsed, error, unasked"),
        ("update answers set rule = x'00'", "answer 0 of .* holds b'.x00', expected text"),
        ("update answers set prediction = '[]'", "answer 0 of .*: the prediction 'k1' cannot be read"),
        ("update cells set notes = '{\"s1\": 5}'", "a note of .* holds 5, expected a list"),
        ("update cells set notes = 'x'", "the notes of .* cannot be read"),
    ],
)
def test_answers_that_no_run_writes_are_refused_by_name(kept: Path, execute: Execute, statement: str, said: str) -> None:
    execute(statement)
    with Evidence.open(kept, read_only=True) as evidence, pytest.raises(StoreError, match=said):
        evidence.get_cell(CELL)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "update samples set content = replace(content, '\"which?\"', '5')",
            "'s1': not a sample .*question of the sample is 5, expected text",
        ),
        ("update samples set id = 's9' where place = 0", "the sample 's9' calls itself 's1'"),
        ("insert into samples select dataset, 2, id, content from samples where place = 0", "has 's1' twice, expected each"),
        ("update samples set content = x'00' where place = 0", "'s1': not a sample of this release"),
    ],
)
def test_samples_that_no_run_writes_are_refused_by_name(kept: Path, execute: Execute, statement: str, said: str) -> None:
    execute(statement)
    with Evidence.open(kept, read_only=True) as evidence, pytest.raises(StoreError, match=said):
        evidence.samples("faces.matching")


def test_a_number_of_views_that_no_file_can_hold_is_refused_at_once(kept: Path, execute: Execute) -> None:
    execute("update cells set views = 1000000000000")
    with Evidence.open(kept, read_only=True) as evidence, pytest.raises(StoreError, match="lacks answers to some views"):
        evidence.get_cell(CELL, whole=False)


def test_rows_that_the_file_has_no_room_for_are_refused(tmp_path: Path) -> None:
    forge(tmp_path)
    with (
        Evidence.open(tmp_path, read_only=True) as evidence,
        pytest.raises(StoreError, match=r"claims more rows in answers than \d+ bytes can hold"),
    ):
        evidence.refuse_impossible_counts()


class Damaged:
    """A connection to a file of which the samples cannot be counted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, query: str, values: Sequence[str | int] = ()) -> sqlite3.Cursor:
        if "from samples" in query:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return self.connection.execute(query, values)


def test_samples_that_cannot_be_counted_are_an_error_of_the_file(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what asks for a part of a cell counts them."""
    with Evidence.open(kept, read_only=True) as evidence:
        connection = evidence._connection
        monkeypatch.setattr(evidence, "_connection", Damaged(connection))
        with pytest.raises(StoreError, match="malformed"):
            evidence.get_cell(CELL, whole=False)
        monkeypatch.setattr(evidence, "_connection", connection)
