"""What a run asks from, by the names in test ids."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.datasets import corpus_metric
from pytest_vlmrobust.datasets.sampling import DrawnByRow, chosen
from pytest_vlmrobust.evaluation.judge.reads import reads_of
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.tasks import TASKS


def circular(folder: Path, questions: int) -> Path:
    """Writes a benchmark whose question is asked four times, its options rotated, and counts if all four are right."""
    image = base64.b64encode((folder / "white.png").read_bytes()).decode()
    lines = ["index\timage\tquestion\tA\tB\tC\tD\tanswer\tcategory"]
    lines += [
        f"{place * 1_000_000 + number}\t{image}\tWhich?\ta\tb\tc\td\t{letter}\t{'xy'[number % 2]}"
        for place, letter in enumerate("ABCD")
        for number in range(questions)
    ]
    (file := folder / "MMBench_DEV_EN.tsv").write_text("\n".join(lines))
    return file


def test_copies_of_a_question_can_be_drawn_by_row(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), "white").save(tmp_path / "white.png")
    file = circular(tmp_path, 20)
    for spec, groups, metric in (("20%", 4, "circular"), ("20%rows", 10, "accuracy"), ("16 rows", 10, "accuracy")):
        data = RunData((str(file),), sample=spec)
        dataset = data.open("MMBench_DEV_EN")
        assert (dataset.name, corpus_metric(dataset)) == ("MMBench_DEV_EN", metric)
        taken = chosen(dataset, spec)
        assert (len(taken), len({sample.group for sample in taken})) == (16, groups)
        assert {name: sum(sample.category == name for sample in taken) for name in "xy"} == {"x": 8, "y": 8}
        assert data.samples_asked(["MMBench_DEV_EN"], spec) == {"MMBench_DEV_EN": (16, 80)}
        assert dataset.digest == RunData((str(file),)).open("MMBench_DEV_EN").digest
    shapes = RunData(("shapes",), sample="20%rows").open("shapes")
    assert not isinstance(shapes, DrawnByRow)  # no question counts only together with others
    assert [sample.id for sample in chosen(shapes, "20%rows")] == [sample.id for sample in chosen(shapes, "20%")]


def test_data_that_cannot_be_read_are_read_once_for_all_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "data.jsonl").write_text("{")
    read, data = list[str](), RunData((str(file),))

    def chosen_samples(_: RunData, name: str, _sample: str) -> tuple[()]:
        read.append(name)
        return ()

    monkeypatch.setattr(RunData, "_chosen", chosen_samples)
    assert {data.changed_size("data", Setting.parse(setting)) for setting in ("antonym", "negation")} == {None}
    assert read == ["data"]


def test_without_names_the_embedded_data_are_asked() -> None:
    assert list(RunData(()).questions) == ["shapes", "words"]
    assert list(RunData(()).collections) == ["faces", "words"]
    assert list(RunData((), small=True).collections) == ["faces_160", "words_160"]


def test_a_name_may_mean_questions_and_identities() -> None:
    data = RunData(("words",))
    assert (list(data.questions), list(data.collections)) == (["words"], ["words"])


def test_a_collection_alone_asks_no_questions() -> None:
    data = RunData(("faces_160",))
    assert (data.questions, list(data.collections)) == ({}, ["faces_160"])
    assert list(data.of_tasks(["matching", "pointing"]).items()) == [
        ("faces_160.matching", "matching"),
        ("faces_160.pointing", "pointing"),
    ]


def test_questions_alone_make_no_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("")
    assert RunData((str(file), "shapes")).tasks == {}


def test_the_other_domain_has_pictures_of_the_same_size() -> None:
    dataset = RunData(("faces_160",)).open("faces_160.matching")
    sizes = {image.load().shape for image in dataset.samples()[0].images}
    assert sizes == {(160, 160, 3)}


def test_a_collection_is_opened_once_for_all_its_tasks() -> None:
    data = RunData(("faces_160",))
    first, second = data.open("faces_160.matching"), data.open("faces_160.guided")
    assert getattr(first, "collection", None) is getattr(second, "collection", 1)


def test_every_task_can_be_opened_by_name() -> None:
    assert set(RunData(("words_160",)).factories) == {f"words_160.{task}" for task in TASKS}


def test_two_names_that_would_look_alike_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "shapes.tsv"
    with pytest.raises(UsageError, match="'shapes' in test ids"):
        _ = RunData(("shapes", str(folder))).questions


def test_what_does_not_exist_is_said_by_check() -> None:
    with pytest.raises(DatasetError, match="'shaeps' was not found"):
        RunData(("shaeps",)).check()


def folder_of(path: Path, *, boxed: bool) -> Path:
    path.mkdir()
    boxes = ',"20,30,40,40","50,30,70,40","40,40,50,60","30,70,60,80"' if boxed else ",,,,"
    lines = ["file,identity,left_eye,right_eye,nose,mouth"]
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
        Image.fromarray(pixels).save(path / f"{number}.png")
        lines.append(f"{number}.png,p{number}{boxes}")
    (path / "faces.csv").write_text("\n".join(lines))
    return path


def test_what_a_folder_lacks_is_known_of_each_task(tmp_path: Path) -> None:
    data = RunData((str(folder_of(tmp_path / "bare", boxed=False)), str(folder_of(tmp_path / "boxed", boxed=True)), "shapes"))
    lacking = {name for name in (*data.tasks, "shapes") if data.lacking(name)}
    boxes = ("guided", "semi_guided", "unguided", "guided_published", "semi_guided_published")
    large = {f"{folder}.{task}" for folder in ("bare", "boxed") for task in ("pointing_3x3", "pointing_4x4")}
    assert lacking == {f"bare.{task}" for task in boxes} | large
    assert str(tmp_path / "bare" / "faces.csv") in data.lacking("bare.guided")
    assert "'boxed' has 3 identities. Add images of others until it has 8" in data.lacking("boxed.pointing_3x3")


def test_of_what_is_lacking_nothing_is_asked(tmp_path: Path) -> None:
    data = RunData((str(folder_of(tmp_path / "bare", boxed=False)),))
    assert reads_of(Cell("m", "bare.guided", CLEAN), [], {}, data).cells == []
    assert reads_of(Cell("m", "bare.matching", CLEAN), [], {}, data).cells != []


@pytest.mark.parametrize("typed", ["guided", "guidde"])
def test_a_task_is_not_named_with_its_collection(tmp_path: Path, typed: str) -> None:
    folder = folder_of(tmp_path / "bare", boxed=False)
    with pytest.raises(UsageError) as caught:
        RunData((f"{folder}.{typed}",)).check()
    text = str(caught.value)
    assert text.startswith(f"--vlm-dataset '{folder}.{typed}': no dataset has this name. '{folder}' is a collection of")
    assert f"Give --vlm-dataset={folder}, and choose tests with -k bare.guided. But nothing can be asked there. bare.g" in text
    assert "Write the boxes (left_eye, right_eye, nose, mouth) into" in text
    with pytest.raises(UsageError, match=r"choose tests with -k faces_160\.guided$"):
        RunData((f"faces_160.{typed}",)).check()
    with pytest.raises(DatasetError, match=r"'faces_160\.v2' was not found"):
        RunData(("faces_160.v2",)).check()
