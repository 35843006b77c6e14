"""Generating a folder, with something in the place of the networks; tests/extras has the networks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import ImageError, UnknownName, UsageError
from pytest_vlmrobust.core.fingerprint import derive_seed, pixels_digest
from pytest_vlmrobust.perturbations.neural import diffusion
from pytest_vlmrobust.perturbations.neural.diffusion import IllusionPipeline
from pytest_vlmrobust.perturbations.registry import REGISTRY

Image = NDArray[np.uint8]
VARIANTS = ("origami", "ocean")
FACTS: dict[str, Any] = {"base": "b0", "guidance_scale": 10.5, "device": "cpu", "versions": {"torch": "2.13"}}


class Stub:
    """Renders noise that depends on everything that should decide an illusion; stops after some."""

    def __init__(self, most: int = 1000, **facts: Any) -> None:
        self.facts = {**FACTS, **facts}
        self.rendered: list[str] = []
        self._most = most

    def render(self, image: Image, variant: str, seed: int) -> Image:
        if len(self.rendered) == self._most:
            raise KeyboardInterrupt
        self.rendered.append(variant)
        parts = (derive_seed(seed, variant, pixels_digest(image)),)
        return np.random.default_rng(parts).integers(0, 256, image.shape, dtype=np.uint8)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forgets what a test registered."""
    before = dict(REGISTRY._things)
    yield
    REGISTRY._things.clear()
    REGISTRY._things.update(before)


def drawn(number: int) -> Image:
    return np.random.default_rng(number).integers(0, 256, (12, 16, 3), dtype=np.uint8)


PICTURES: dict[str, Any] = {"cat": drawn(1), "page.2": drawn(2)}


def generate(stub: Stub, folder: Path, pictures: Any = None, **options: Any) -> int:
    pictures = PICTURES if pictures is None else pictures
    options = {"variants": VARIANTS, **options}
    return perturbations.generate_folder(cast("IllusionPipeline", stub), pictures, folder, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "index.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert generate(Stub(), folder) == 4
    names = ("ocean", "origami", "original")
    assert [*files(folder)] == ["index.jsonl", *(f"{part}/{name}.png" for part in names for name in ("cat", "page.2"))]
    assert perturbations.illusions(folder) == ["illusion:ocean", "illusion:origami"]
    for name, picture in PICTURES.items():
        stored = perturbations.get("illusion:ocean")(picture, seed=1)
        np.testing.assert_array_equal(stored, Stub().render(picture, "ocean", derive_seed(1234, name, "ocean")))


def test_the_index_says_how_each_was_made(tmp_path: Path) -> None:
    generate(Stub(), tmp_path, seed=5)
    written = {line["file"]: line for line in lines(tmp_path)}
    assert len(written) == 4
    assert written["ocean/page.2.png"] == {
        "file": "ocean/page.2.png",
        "prompt": diffusion.prompt("ocean"),
        "seed": derive_seed(5, "page.2", "ocean"),
        "source": pixels_digest(drawn(2)),
        **FACTS,
    }


def test_all_variants_by_default_and_pictures_of_any_kind(tmp_path: Path) -> None:
    stub = Stub()
    grey = PIL.Image.fromarray(drawn(3)).convert("L")
    assert perturbations.generate_folder(cast("IllusionPipeline", stub), {"grey": grey}, tmp_path) == 15
    assert stub.rendered == list(diffusion.VARIANTS)
    assert len(perturbations.illusions(tmp_path)) == 15
    perturbations.get("illusion:museum")(perturbations.as_rgb(grey), seed=1)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_after_an_interruption_the_same_call_goes_on(tmp_path: Path, most: int) -> None:
    generate(Stub(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        generate(Stub(most), tmp_path / "parts")
    assert generate(Stub(), tmp_path / "parts") == 4 - most
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert generate(Stub(), tmp_path / "parts") == 0
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_half_a_line_of_the_index_is_cut_off(tmp_path: Path) -> None:
    generate(Stub(), tmp_path / "whole")
    generate(Stub(), tmp_path / "torn")
    index = tmp_path / "torn" / "index.jsonl"
    content = index.read_bytes()
    index.write_bytes(content[:-40])
    (tmp_path / "torn" / "ocean" / "page.2.png").unlink()  # its line is written before it
    assert generate(Stub(), tmp_path / "torn") == 1
    assert files(tmp_path / "torn") == files(tmp_path / "whole")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    generate(Stub(), tmp_path)
    with (tmp_path / "index.jsonl").open("a") as stream:
        stream.write("[]\n")
    with pytest.raises(UsageError, match=r"index.jsonl:5: b'\[\]\\n' does not say how an illusion was made.*Delete the line"):
        generate(Stub(), tmp_path)


def test_more_pictures_and_variants_are_added(tmp_path: Path) -> None:
    generate(Stub(), tmp_path, {"cat": drawn(1)}, variants=["ocean"])
    before = files(tmp_path)
    assert generate(Stub(), tmp_path) == 3
    after = files(tmp_path)
    assert all(after[name] == before[name] for name in before if name != "index.jsonl")
    assert after["index.jsonl"].startswith(before["index.jsonl"])


def test_pictures_of_the_users_own_are_kept(tmp_path: Path) -> None:
    (tmp_path / "ocean").mkdir()
    PIL.Image.fromarray(drawn(9)).save(tmp_path / "ocean" / "cat.bmp")
    assert generate(Stub(), tmp_path) == 3
    perturbations.illusions(tmp_path)
    np.testing.assert_array_equal(perturbations.get("illusion:ocean")(drawn(1), seed=1), drawn(9))


@pytest.mark.parametrize("facts", [{"guidance_scale": 7.5}, {"base": "b1"}])
def test_illusions_of_other_making_are_not_mixed(tmp_path: Path, facts: dict[str, Any]) -> None:
    generate(Stub(), tmp_path)
    ((key, value),) = facts.items()
    with pytest.raises(UsageError) as caught:
        generate(Stub(**facts), tmp_path)
    assert str(caught.value) == (
        f"generate_folder: {tmp_path / 'origami' / 'cat.png'} was made with {key} {FACTS[key]!r}, and now it is {value!r}. "
        "Choose another folder, or delete what is to be made anew"
    )
    with pytest.raises(UsageError, match="was made with seed"):
        generate(Stub(), tmp_path, seed=99)


def test_another_machine_may_go_on(tmp_path: Path) -> None:
    generate(Stub(), tmp_path, {"cat": drawn(1)})
    assert generate(Stub(device="cuda:0", versions={"torch": "2.14"}), tmp_path) == 2
    assert [line["device"] for line in lines(tmp_path)] == ["cpu", "cpu", "cuda:0", "cuda:0"]


def test_another_picture_under_the_same_name_is_refused(tmp_path: Path) -> None:
    generate(Stub(), tmp_path)
    with pytest.raises(UsageError, match=r"original/cat.png is another picture than 'cat' of now. Choose another folder or name"):
        generate(Stub(), tmp_path, {"cat": drawn(7)})


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a\\b", "C:x", "what?", "tab\t"])
def test_names_that_are_no_file_names(tmp_path: Path, name: str) -> None:
    stub = Stub()
    with pytest.raises(UsageError, match=r"cannot be written to a file of that name. Expected no dot in front"):
        generate(stub, tmp_path / "out", {"good": drawn(1), name: drawn(2)})
    assert not stub.rendered
    assert not (tmp_path / "out").exists()


def test_unknown_variants_and_what_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"unknown variant of illusions 'oceans'. Did you mean 'ocean'"):
        generate(Stub(), tmp_path, variants=["oceans"])
    with pytest.raises(ImageError, match=r"shape \(2, 2, 2, 2\)"):
        generate(Stub(), tmp_path, {"x": np.zeros((2, 2, 2, 2), np.uint8)})
    assert not files(tmp_path)
