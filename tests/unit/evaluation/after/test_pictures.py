"""Pictures of a run: whether they are those that the model saw, and what is said where they cannot be had."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, VlmRobustError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets import resolve
from pytest_vlmrobust.evaluation.after.pictures import OTHER, SAME, UNKNOWN, RunPictures
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.store import Evidence, Pictures, Store, write_manifest

FOG = Setting.parse("fog:mid")


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Path, Sample]]:
    """Returns what writes the run of a store, and a sample that it asked about."""

    def made(*, digest: str = "", dataset: str = "shapes", seed: object = 7) -> tuple[Path, Sample]:
        data = resolve("shapes")
        directory = tmp_path / "store" / "runs" / "one"
        with Evidence.open(directory) as evidence:
            evidence.put_samples(dataset, digest or data.digest, data.samples()[:3])
        write_manifest(directory, {"settings": {"vlm_dataset": [dataset], "vlm_seed": seed, "vlm_data": ""}, "store": "../.."})
        return directory, data.samples()[0]

    return made


def remember(directory: Path, sample: Sample, setting: Setting, *, seed: int = 7, digests: tuple[str, ...] = ()) -> None:
    """Puts what a picture was into the store of a run."""
    maker = ViewMaker(seed)
    with Store.open(directory.parent.parent) as store:
        store.put_digests({maker.recipe(sample, setting): digests or maker.view(sample, setting).digests})


def test_a_picture_is_made_again_and_compared_with_what_was_seen(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    remember(directory, sample, FOG)
    pictures = RunPictures(directory)
    assert pictures.problem("shapes") == ""
    assert pictures.shown("shapes", sample.id, "fog:mid").check == SAME
    content, kind = pictures.picture("shapes", sample.id, "fog:mid", 0)
    assert kind == "image/png"
    assert np.array_equal(np.asarray(Image.open(BytesIO(content))), ViewMaker(7).view(sample, FOG).images[0])


def test_other_pixels_are_called_other(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    remember(directory, sample, FOG, digests=("0" * 64,))
    assert RunPictures(directory).shown("shapes", sample.id, "fog:mid").check == OTHER


def test_without_a_store_nothing_is_claimed(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    pictures = RunPictures(directory)
    assert pictures.shown("shapes", sample.id, "fog:mid").check == UNKNOWN
    assert pictures.shown("shapes", sample.id, "clean").check == UNKNOWN


def test_clean_pictures_are_known_from_the_evidence_alone(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    known = ViewMaker(7).picture_digests(
        [sample], lambda recipes: dict.fromkeys(recipes, ViewMaker(7).view(sample, CLEAN).digests)
    )
    with Evidence.open(directory) as evidence:
        evidence.put_pictures("shapes", known)
    assert RunPictures(directory).shown("shapes", sample.id, "clean").check == SAME


def test_patches_are_shown_view_by_view(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    pictures = RunPictures(directory)
    shown = pictures.shown("shapes", sample.id, "patches:2")
    assert (shown.views, len(shown.digests), shown.names) == (4, 4, ("",))
    assert len({pictures.picture("shapes", sample.id, "patches:2", number) for number in range(4)}) == 4
    with pytest.raises(DatasetError, match="no image 4"):
        pictures.picture("shapes", sample.id, "patches:2", 4)
    with pytest.raises(DatasetError, match="no image -1"):
        pictures.picture("shapes", sample.id, "patches:2", -1)


def test_a_stored_thumbnail_is_shown_as_it_is(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    remember(directory, sample, FOG)
    store = directory.parent.parent
    small = RunPictures(directory).picture("shapes", sample.id, "fog:mid", 0, small=True)
    view = ViewMaker(7).view(sample, FOG)
    Pictures(store / "pictures").add(view.digests[0], view.images[0])
    stored = store / "pictures" / f"{view.digests[0]}.webp"
    assert small == (stored.read_bytes(), "image/webp")
    stored.write_bytes(b"as it is")
    assert RunPictures(directory).picture("shapes", sample.id, "fog:mid", 0, small=True) == (b"as it is", "image/webp")


def test_nothing_is_written(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    remember(directory, sample, FOG)
    store = directory.parent.parent
    before = sorted(path for path in store.rglob("*") if "-wal" not in path.name and "-shm" not in path.name)
    RunPictures(directory).picture("shapes", sample.id, "fog:mid", 0, small=True)
    assert sorted(path for path in store.rglob("*") if "-wal" not in path.name and "-shm" not in path.name) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "0" * 64}, "not the ones that the run asked about"),
        ({"dataset": "nowhere"}, "nowhere"),
        ({"seed": None}, "does not say the seed"),
    ],
)
def test_pictures_that_cannot_be_had_are_said(
    make: Callable[..., tuple[Path, Sample]], changes: dict[str, object], message: str
) -> None:
    directory, sample = make(**changes)
    with pytest.raises(VlmRobustError, match=message):
        RunPictures(directory).shown(str(changes.get("dataset", "shapes")), sample.id, "fog:mid")


def test_a_run_without_a_manifest_says_so(tmp_path: Path) -> None:
    pictures = RunPictures(tmp_path)
    assert "cannot read the manifest" in pictures.problem("shapes")
    with pytest.raises(StoreError):
        _ = pictures._manifest


def test_unknown_samples_and_settings_are_refused(make: Callable[..., tuple[Path, Sample]]) -> None:
    directory, sample = make()
    for name, setting in (("nobody", "clean"), (sample.id, "nothing:high"), (sample.id, "../clean")):
        with pytest.raises(VlmRobustError):
            RunPictures(directory).picture("shapes", name, setting, 0)


def test_looking_at_a_run_downloads_nothing(make: Callable[..., tuple[Path, Sample]], monkeypatch: pytest.MonkeyPatch) -> None:
    directory, _ = make()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "0")
    write_manifest(directory, {"settings": {"vlm_dataset": ["hf:lmms-lab/POPE"], "vlm_seed": 7}})
    assert RunPictures(directory).problem("POPE")
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["HF_DATASETS_OFFLINE"] == "1"
