"""From a name to a dataset, and what is said when there is none."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import pytest_vlmrobust
from pytest_vlmrobust.core.errors import DatasetError, MissingExtra, UsageError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import (
    COLLECTIONS,
    DATASETS,
    benchmarks,
    dataset_id,
    names,
    register,
    register_collection,
    resolve,
    resolve_collection,
)
from pytest_vlmrobust.datasets.faces_folder import FaceFolder

REPOSITORY = Path(pytest_vlmrobust.__file__).parents[1]


class Two:
    """A dataset of a user's own."""

    name = "two"
    digest = "0" * 64
    native_long_edge = None

    def samples(self) -> Sequence[Sample]:
        return [Sample(str(i), (), "q", "x", "open") for i in range(2)]


@pytest.fixture
def two() -> Iterator[None]:
    register("two_for_test", Two)
    yield
    DATASETS._things.pop("two_for_test")


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VLMROBUST_DATA", raising=False)
    monkeypatch.delenv("LMUData", raising=False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def tsv(path: Path) -> Path:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"index\timage\tquestion\tanswer\n1\t{base64.b64encode(stream.getvalue()).decode()}\tq\tred\n")
    return path


@pytest.mark.usefixtures("two")
def test_a_registered_name_comes_first(tmp_path: Path) -> None:
    tsv(tmp_path / "two_for_test.tsv")
    assert "two_for_test" in names()
    assert [sample.id for sample in resolve("two_for_test", data_dir=tmp_path).samples()] == ["0", "1"]


@pytest.mark.usefixtures("two")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(UsageError, match="dataset 'two_for_test' is registered already"):
        register("two_for_test", Two)
    register("two_for_test", Two, replace=True)


def test_a_path(tmp_path: Path) -> None:
    dataset = resolve(tsv(tmp_path / "some.data" / "plans.v2.TSV"))
    assert dataset.name == "plans.v2"
    assert dataset.native_long_edge is None
    assert len(dataset.samples()) == 1


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    tsv(tmp_path / "bench" / "data.tsv")
    (tmp_path / "bench" / "notes.txt").write_text("x")
    assert resolve(str(tmp_path / "bench")).name == "bench"


def test_a_folder_with_two_files_and_with_none(tmp_path: Path) -> None:
    tsv(tmp_path / "bench" / "b.tsv")
    tsv(tmp_path / "bench" / "a.tsv")
    with pytest.raises(DatasetError, match=r"bench holds 2 datasets \(a\.tsv, b\.tsv\): expected exactly one"):
        resolve(tmp_path / "bench")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.xlsx").write_text("")
    with pytest.raises(
        DatasetError,
        match=r"empty has no data file. Expected exactly one of a \.tsv, a \.jsonl, a \.csv, a \.parquet, or faces\.csv",
    ) as caught:
        resolve(tmp_path / "empty")
    assert str(caught.value).endswith("A table of identities is called faces.csv, and there is a.xlsx. It holds a.xlsx")


def test_a_misspelt_collection_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(DatasetError) as caught:
        resolve("face_160")
    text = str(caught.value)
    assert text.startswith("dataset 'face_160' was not found. Did you mean 'faces_160'? Registered: global_cue, local_cue, ")
    assert "; collections of identities: faces, faces_160, words, words_160. Looked for " in text
    assert "or a folder with one of them or with faces.csv for identities" in text


def test_a_registered_collection_asks_no_questions() -> None:
    with pytest.raises(DatasetError, match=r"'faces_160' is a collection of identities and asks no questions: .*: global_cue, "):
        resolve("faces_160")


def test_a_path_to_something_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(
        DatasetError, match=r"a\.txt is not a dataset: expected a \.tsv, a \.jsonl, a \.csv, a \.parquet, or a folder"
    ):
        resolve(tmp_path / "a.txt")


@pytest.mark.parametrize("file", ["GQA.tsv", "GQA_local.tsv", "GQA/data.tsv"])
def test_a_benchmark_in_the_data_folder(tmp_path: Path, file: str) -> None:
    tsv(tmp_path / "data" / file)
    dataset = resolve("GQA", data_dir=tmp_path / "data")
    assert (dataset.name, [sample.scorer for sample in dataset.samples()]) == ("GQA", ["exact"])


@pytest.mark.parametrize("variable", ["VLMROBUST_DATA", "LMUData"])
def test_the_data_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    tsv(tmp_path / "data" / "POPE.tsv")
    monkeypatch.setenv(variable, str(tmp_path / "data"))
    assert resolve("POPE").name == "POPE"
    with pytest.raises(DatasetError, match="was not found"):
        resolve("POPE", data_dir=tmp_path)


def test_an_absent_one_says_where_it_was_looked_for(tmp_path: Path) -> None:
    tsv(tmp_path / "data" / "MMBench_DEV_EN.tsv")
    with pytest.raises(DatasetError) as caught:
        resolve("mmbench_dev_en", data_dir=tmp_path / "data")
    text = str(caught.value).replace(str(tmp_path), "DIR")
    assert text.startswith("dataset 'mmbench_dev_en' was not found. Did you mean 'MMBench_DEV_EN'? Registered: ")
    assert "Looked for DIR/cwd/mmbench_dev_en, DIR/data/mmbench_dev_en.tsv, DIR/data/mmbench_dev_en_local.tsv" in text
    assert "No data folder" not in text


def test_an_absent_one_without_a_data_folder() -> None:
    with pytest.raises(
        DatasetError, match="No data folder is set: use --vlm-data DIR, or the environment variable VLMROBUST_DATA"
    ):
        resolve("mmbench")


def test_an_absent_benchmark_says_which_files_it_has() -> None:
    with pytest.raises(DatasetError) as caught:
        resolve("POPE")
    assert str(caught.value).endswith(
        "POPE is a benchmark; nothing is downloaded for it. Its files as VLMEvalKit names them: POPE.tsv, POPE_*.tsv; "
        "on the Hugging Face hub: hf:lmms-lab/POPE"
    )
    with pytest.raises(DatasetError, match=r"dataset 'AI2D_TETS' was not found\. Did you mean 'AI2D_TEST'\?"):
        resolve("AI2D_TETS")


@pytest.mark.parametrize("typed", ["photos.json", "photo.jsonl", "photos"])
def test_an_absent_file_is_answered_by_a_data_file_beside_it(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos.jsonl").write_text("")
    with pytest.raises(DatasetError, match=rf"^dataset '{typed}' was not found\. Did you mean 'photos\.jsonl'\?"):
        resolve(typed)


@pytest.mark.parametrize("name", ["DocVQA_VAL", "OCRBench", "RefCOCO"])
def test_an_absent_benchmark_is_not_taken_for_another(name: str) -> None:
    with pytest.raises(DatasetError) as caught:
        resolve(name)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.cases("name", [file for benchmark in benchmarks().values() for file in benchmark.file_names])
def test_every_benchmark_that_is_absent_is_an_error_with_the_places(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError) as caught:
        resolve(name, data_dir=tmp_path)
    assert f"dataset {name!r} was not found." in str(caught.value)
    assert f"{tmp_path / name}.tsv" in str(caught.value)
    assert f"{name}.tsv" in str(caught.value).partition("Its files as VLMEvalKit names them: ")[2]


def test_the_hub_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expected = "reading hf:lmms-lab/POPE needs the package 'datasets', which is not installed. "
    with pytest.raises(MissingExtra, match=re.escape(expected + "Install it: pip install 'datasets>=")):
        resolve("hf:lmms-lab/POPE")


def test_an_empty_name() -> None:
    with pytest.raises(UsageError, match="the name of a dataset is empty"):
        resolve(" ")


def test_compat_is_for_tsv_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"compat='vlmevalkit' is for VLMEvalKit's TSV files only; .*a\.jsonl is no such file"):
        resolve(tmp_path / "a.jsonl", compat="vlmevalkit")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("shapes", "shapes"),
        ("data/MMBench_DEV_EN.tsv", "MMBench_DEV_EN"),
        ("/x/my data.v2.jsonl", "my-data.v2"),
        ("folder/bench/", "bench"),
        ("hf:lmms-lab/POPE", "POPE"),
        ("[a]::b@c.tsv", "a-b-c"),
    ],
)
def test_dataset_id(typed: str, name: str) -> None:
    assert dataset_id(typed) == name


@settings(deadline=None)
@given(st.text(max_size=200))
def test_a_dataset_id_is_always_safe(typed: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,60}", dataset_id(typed))


def test_importing_and_naming_needs_neither_numpy_nor_pillow() -> None:
    program = (
        "import sys; from pytest_vlmrobust import datasets; datasets.dataset_id('a/b.tsv'); datasets.names(); "
        "import pytest_vlmrobust.datasets.sampling; "
        "sys.exit(', '.join({'numpy', 'PIL', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert (done.returncode, done.stderr) == (0, "")


People = Callable[..., Path]


@pytest.fixture
def registered(people: People) -> Iterator[FaceFolder]:
    collection = FaceFolder(people(["a"], "elsewhere"), "crew_for_test")
    register_collection("crew_for_test", lambda: collection)
    yield collection
    COLLECTIONS._things.pop("crew_for_test")


def test_a_registered_collection_comes_first(registered: FaceFolder, people: People, tmp_path: Path) -> None:
    folder = people(["a"], "crew_for_test")
    assert resolve_collection("crew_for_test", tmp_path) is registered
    by_path = resolve_collection(folder)
    assert isinstance(by_path, FaceFolder)
    assert by_path.folder == folder


def test_a_collection_by_its_path_with_and_without_a_slash(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = people(["a", "a"], "crew v2")
    monkeypatch.chdir(folder)
    for typed in (folder, f"{folder}/", "../crew v2", "."):
        collection = resolve_collection(typed)
        assert collection is not None
        assert collection.name == "crew-v2" == dataset_id(str(typed))
        assert [entity.id for entity in collection.entities()] == ["p0", "p1"]


@pytest.mark.parametrize("variable", ["VLMROBUST_DATA", "LMUData"])
def test_a_collection_in_the_data_folder(people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    people(["a"], "crew")
    assert resolve_collection("crew") is None
    assert resolve_collection("crew", data_dir=tmp_path) is not None
    monkeypatch.setenv(variable, str(tmp_path))
    collection = resolve_collection("crew")
    assert isinstance(collection, FaceFolder)
    assert collection.folder == tmp_path / "crew"


def test_what_is_no_collection(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "q.jsonl").write_text("{}")
    for typed in ("", " ", "absent", tmp_path / "absent", tmp_path / "empty", tmp_path / "q.jsonl", "hf:lmms-lab/POPE"):
        assert resolve_collection(typed) is None


def test_questions_are_not_asked_of_a_collection(people: People) -> None:
    folder = people(["a"])
    where = re.escape(str(folder))
    expected = (
        rf"{where} is a collection of identities \(it holds faces\.csv\) and asks no questions: the tasks of the Observatory are "
        r"made of it, by suites/test_observatory\.py\. Expected a \.tsv, a \.jsonl, a \.csv, a \.parquet for questions"
    )
    with pytest.raises(DatasetError, match=expected):
        resolve(folder)
    with pytest.raises(
        DatasetError, match=rf"faces\.csv is not a dataset: .*To mean a collection of identities, give its folder: {where}$"
    ):
        resolve(folder / "faces.csv")


def test_resolving_and_reading_load_no_network_library(people: People) -> None:
    folder = people(["a"] * 3)
    program = (
        "import sys\n"
        "from pytest_vlmrobust.datasets import resolve_collection\n"
        "assert not {'numpy', 'cv2', 'PIL', 'torch'} & {*sys.modules}\n"
        f"collection = resolve_collection({str(folder)!r})\n"
        "collection.neighbours(collection.entities()[0], 2), collection.digest\n"
        "import pytest_vlmrobust.datasets.neural\n"
        "loaded = {'torch', 'transformers', 'mediapipe', 'huggingface_hub'} & {*sys.modules}\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["circular", "plain"])
def test_an_index_of_thousands_of_digits_is_a_name_like_any_other(tmp_path: Path, name: str) -> None:
    Image.new("RGB", (8, 6)).save(tmp_path / "x.png")
    digits = "9" * 6000 + "1000007"
    header = "index\tquestion\tanswer\thint\timage_path\tA\tB\n"
    (tmp_path / f"{name}.tsv").write_text(f"{header}{digits}\tWhat?\tA\t{digits}\tx.png\t{digits}\t5\n", encoding="utf-8")
    for compat in ("", "vlmevalkit"):
        (sample,) = resolve(tmp_path / f"{name}.tsv", compat=compat).samples()
        assert sample.id == digits
        assert (sample.group == "7") is (name == "circular")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.tsv"])
def test_a_pipe_is_refused_for_it_might_never_end(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(
        DatasetError, match=r"is not a dataset: it is no file\. Expected a \.tsv, a \.jsonl, a \.csv, a \.parquet, or a folder"
    ):
        resolve(tmp_path / name)
