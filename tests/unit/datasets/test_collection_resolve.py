"""From a name to a collection of identities."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.datasets import COLLECTIONS, dataset_id, register_collection, resolve, resolve_collection
from pytest_vlmrobust.datasets.faces_folder import FaceFolder

People = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VLMROBUST_DATA", raising=False)
    monkeypatch.delenv("LMUData", raising=False)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture
def registered(people: People) -> Iterator[FaceFolder]:
    collection = FaceFolder(people(["a"], "elsewhere"), "crew_for_test")
    register_collection("crew_for_test", lambda: collection)
    yield collection
    COLLECTIONS._things.pop("crew_for_test")


def test_a_registered_name_comes_first(registered: FaceFolder, people: People, tmp_path: Path) -> None:
    folder = people(["a"], "crew_for_test")
    assert resolve_collection("crew_for_test", tmp_path) is registered
    by_path = resolve_collection(folder)
    assert isinstance(by_path, FaceFolder)
    assert by_path.folder == folder


def test_a_path_with_and_without_a_slash(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = people(["a", "a"], "crew v2")
    monkeypatch.chdir(folder)
    for typed in (folder, f"{folder}/", "../crew v2", "."):
        collection = resolve_collection(typed)
        assert collection is not None
        assert collection.name == "crew-v2" == dataset_id(str(typed))
        assert [entity.id for entity in collection.entities()] == ["p0", "p1"]


@pytest.mark.parametrize("variable", ["VLMROBUST_DATA", "LMUData"])
def test_a_name_in_the_data_folder(people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    people(["a"], "crew")
    assert resolve_collection("crew") is None
    assert resolve_collection("crew", data_dir=tmp_path) is not None
    monkeypatch.setenv(variable, str(tmp_path))
    found = resolve_collection("crew")
    assert isinstance(found, FaceFolder)
    assert found.folder == tmp_path / "crew"


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
        r"made of it, by suites/test_observatory\.py\. Expected a \.tsv or a \.jsonl for questions"
    )
    with pytest.raises(DatasetError, match=expected):
        resolve(folder)
    with pytest.raises(
        DatasetError, match=rf"faces\.csv is no dataset: .*To mean a collection of identities, give its folder: {where}$"
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
        "import pytest_vlmrobust.datasets.neural.encoder, pytest_vlmrobust.datasets.neural.landmarks\n"
        "loaded = {'torch', 'transformers', 'mediapipe', 'huggingface_hub'} & {*sys.modules}\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
