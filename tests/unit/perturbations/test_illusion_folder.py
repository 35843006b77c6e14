from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import ImageError, SettingError, UsageError
from pytest_vlmrobust.perturbations import illusion_folder
from pytest_vlmrobust.perturbations.registry import CATEGORIES, REGISTRY

Image = NDArray[np.uint8]


def drawn(number: int, height: int = 24, width: int = 32) -> Image:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(image: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(image).save(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures in two variants; the second variant is of another size and format."""
    for number, name in enumerate("ab"):
        save(drawn(number), tmp_path / "original" / f"{name}.png")
        save(drawn(number + 10), tmp_path / "origami" / f"{name}.png")
        save(drawn(number + 20, 48, 64), tmp_path / "starry_sky" / f"{name}.bmp")
    (tmp_path / "index.jsonl").write_text("not read here")
    return tmp_path


def test_a_picture_is_found_by_its_pixels_and_its_variant_returned(folder: Path) -> None:
    assert perturbations.illusions(folder) == ["illusion:origami", "illusion:starry_sky"]
    for number in (0, 1):
        np.testing.assert_array_equal(perturbations.get("illusion:origami")(drawn(number), seed=1), drawn(number + 10))
        np.testing.assert_array_equal(perturbations.get("illusion:starry_sky")(drawn(number), seed=1), drawn(number + 20, 48, 64))


def test_it_is_a_perturbation_of_the_family_illusion(folder: Path) -> None:
    perturbations.illusions(str(folder))
    facts = perturbations.info("illusion:origami")
    assert (facts.family, facts.category) == ("illusion", CATEGORIES["illusion"])
    assert (facts.stochastic, facts.keeps_size, facts.views) == (False, False, 1)
    assert facts.label_changing == {"colour"}
    assert "the same layout" in facts.doc
    assert REGISTRY.get("illusion").source
    assert perturbations.names("all")[-2:] == ["illusion:origami", "illusion:starry_sky"]
    assert perturbations.names("observatory_ood") == ["illusion:origami", "illusion:starry_sky"]


def test_what_every_perturbation_promises(folder: Path) -> None:
    perturbations.illusions(folder)
    picture = drawn(0)
    for setting in ("illusion:origami", "illusion:starry_sky"):
        render = perturbations.get(setting)
        changed = render(picture, seed=1)
        assert changed.dtype == np.uint8
        assert changed.flags.writeable
        assert changed.flags.c_contiguous
        changed ^= 0xFF
        np.testing.assert_array_equal(render(picture, seed=2), changed ^ 0xFF)
        strided = np.repeat(picture, 2, axis=0)[::2]
        np.testing.assert_array_equal(render(strided, seed=3), changed ^ 0xFF)
    np.testing.assert_array_equal(picture, drawn(0))


def test_the_format_of_the_originals_does_not_matter(folder: Path) -> None:
    sixteen = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    save(sixteen, folder / "original" / "grey.png")
    palette = PIL.Image.fromarray(drawn(5)).convert("P")
    palette.save(folder / "original" / "palette.png")
    for name in ("grey", "palette"):
        save(drawn(30), folder / "origami" / f"{name}.png")
    perturbations.illusions(folder)
    for picture in (sixteen, palette):
        changed = perturbations.get("illusion:origami")(perturbations.as_rgb(picture), seed=1)
        np.testing.assert_array_equal(changed, drawn(30))


def test_of_equal_originals_the_first_by_name_counts(folder: Path) -> None:
    save(drawn(0), folder / "original" / "c.png")
    save(drawn(40), folder / "origami" / "c.png")
    perturbations.illusions(folder)
    np.testing.assert_array_equal(perturbations.get("illusion:origami")(drawn(0), seed=1), drawn(10))


def test_originals_are_read_once_by_all_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perturbations.illusions(folder)
    read: list[Path] = []
    decoded = illusion_folder.decode_picture

    def counted(file: Path, where: str) -> Image:
        read.append(file)
        return decoded(file, where)

    monkeypatch.setattr(illusion_folder, "decode_picture", counted)
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(lambda number: perturbations.get("illusion:origami")(drawn(number % 2), seed=1), range(40)))
    assert all((image == drawn(10 + number % 2)).all() for number, image in enumerate(images))
    assert sorted(file.name for file in read if file.parent.name == "original") == ["a.png", "b.png"]


@pytest.mark.parametrize("part", ["original", "origami"])
def test_a_file_that_changes_while_a_run_reads_it_is_refused(folder: Path, part: str) -> None:
    """Else its answers would be known by the digest of another picture."""
    perturbations.illusions(folder)
    perturbations.fingerprint("illusion:origami")
    save(drawn(99), folder / part / "a.png")
    with pytest.raises(ImageError, match=rf"{part}/a\.png was changed while the run was reading it\. Start the run again"):
        perturbations.get("illusion:origami")(drawn(0), seed=1)


def test_nothing_is_read_before_a_setting_is_used(folder: Path) -> None:
    (folder / "original" / "a.png").write_bytes(b"no image")
    perturbations.illusions(folder)
    perturbations.info("illusion:origami")
    render = perturbations.get("illusion:origami")
    with pytest.raises(ImageError, match=r"illusion: .*original/a.png cannot be decoded \(UnidentifiedImageError"):
        render(drawn(1), seed=1)


def test_a_picture_that_is_not_in_the_folder(folder: Path) -> None:
    perturbations.illusions(folder)
    with pytest.raises(ImageError) as caught:
        perturbations.get("illusion:origami")(drawn(9), seed=1)
    assert str(caught.value) == (
        f"illusion:origami: this image of 32 x 24 pixels is none of the 2 in {folder / 'original'}. Pixels are compared as "
        "decoded: store what the dataset gives, without loss, and name 'illusion:origami' first in a composed setting"
    )


def test_it_comes_first_in_a_composed_setting(folder: Path) -> None:
    perturbations.illusions(folder)
    after = perturbations.get("illusion:origami+flip_h")(drawn(0), seed=1)
    np.testing.assert_array_equal(after, drawn(10)[:, ::-1])
    with pytest.raises(ImageError, match="name 'illusion:origami' first"):
        perturbations.get("flip_h+illusion:origami")(drawn(0), seed=1)


def test_a_variant_that_is_missing(folder: Path) -> None:
    (folder / "origami" / "b.png").unlink()
    perturbations.illusions(folder)
    render = perturbations.get("illusion:origami")
    np.testing.assert_array_equal(render(drawn(0), seed=1), drawn(10))
    with pytest.raises(ImageError) as caught:
        render(drawn(1), seed=1)
    assert str(caught.value) == (
        f"illusion:origami: {folder / 'origami'} has no file for the original 'b.png'. Expected b.png there; "
        "recipes/illusions.py makes what is missing"
    )


def test_a_variant_that_is_cut_short(folder: Path) -> None:
    file = folder / "origami" / "b.png"
    file.write_bytes(file.read_bytes()[:300])
    perturbations.illusions(folder)
    with pytest.raises(ImageError, match=r"illusion:origami: .*origami/b.png cannot be decoded \(.*\). Generate it again"):
        perturbations.get("illusion:origami")(drawn(1), seed=1)


def test_an_unknown_variant(folder: Path) -> None:
    perturbations.illusions(folder)
    with pytest.raises(SettingError, match=r"no level 'ocean'. Expected one of 'illusion:origami', 'illusion:starry_sky'"):
        perturbations.get("illusion:ocean")


def digest(setting: str) -> Any:
    (step,) = perturbations.fingerprint(setting)
    return step["params"]["files"]


def test_the_fingerprint_has_the_digest_of_the_files(folder: Path) -> None:
    perturbations.illusions(folder, name="one")
    first = {setting: digest(setting) for setting in ("one:origami", "one:starry_sky")}
    assert len(set(first.values())) == 2
    assert all(len(value) == 64 for value in first.values())
    save(drawn(50), folder / "origami" / "b.png")
    assert digest("one:origami") == first["one:origami"]  # as it was when it was first asked for
    perturbations.illusions(folder, name="two")
    assert digest("two:origami") != first["one:origami"]
    assert digest("two:starry_sky") == first["one:starry_sky"]
    save(drawn(51), folder / "original" / "b.png")
    perturbations.illusions(folder, name="three")
    assert digest("three:starry_sky") != first["one:starry_sky"]


def test_the_fingerprint_does_not_depend_on_where_the_folder_is(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    perturbations.illusions(folder, name="one")
    before = digest("one:origami")
    folder.rename(elsewhere)
    perturbations.illusions(elsewhere, name="two")
    assert digest("two:origami") == before


def test_a_file_that_is_gone_has_no_digest(folder: Path) -> None:
    perturbations.illusions(folder)
    (folder / "origami" / "b.png").unlink()
    with pytest.raises(ImageError, match=r"illusion:origami: .*b.png cannot be read: No such file"):
        perturbations.fingerprint("illusion:origami")


def test_a_second_folder_needs_a_name_or_takes_the_place(folder: Path) -> None:
    perturbations.illusions(folder)
    with pytest.raises(UsageError, match=r"'illusion' is registered already by perturbations.illusions\('.*'\). Choose another"):
        perturbations.illusions(folder)
    save(drawn(60), folder / "ocean" / "a.png")
    assert "illusion:ocean" in perturbations.illusions(folder, replace=True)
    assert perturbations.illusions(folder, name="mine")[0] == "mine:ocean"
    with pytest.raises(UsageError, match="'fog' is built in"):
        perturbations.illusions(folder, name="fog", replace=True)


def test_other_files_and_hidden_folders_are_left_alone(folder: Path) -> None:
    (folder / "origami" / "Thumbs.db").write_bytes(b"")
    (folder / "origami" / ".draft.png").write_bytes(b"")
    (folder / ".cache").mkdir()
    assert perturbations.illusions(folder) == ["illusion:origami", "illusion:starry_sky"]


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        perturbations.illusions(folder)


def test_folders_that_do_not_have_the_layout(tmp_path: Path) -> None:
    refused(
        tmp_path / "absent", r"illusions: there is no folder '.*absent'. Expected FOLDER/original/NAME.png and FOLDER/VARIANT"
    )
    (tmp_path / "orginal").mkdir()
    refused(tmp_path, r"has no folder 'original'. Did you mean 'orginal'\? Expected FOLDER/original")
    (tmp_path / "orginal").rename(tmp_path / "original")
    refused(tmp_path, r"there are no images in .*original. Expected FOLDER/original")
    save(drawn(1), tmp_path / "original" / "cat.png")
    refused(tmp_path, "has no variants. Expected FOLDER/original")
    (tmp_path / "origami").mkdir()
    refused(tmp_path, "there are no images in .*origami")
    save(drawn(2), tmp_path / "origami" / "cats.png")
    refused(tmp_path, r"cats.png is a variant of no image: .*original has no 'cats'. Did you mean 'cat'\? Rename the file")


@pytest.mark.parametrize("name", ["Origami", "starry sky", "a+b", "é"])
def test_variants_that_cannot_be_written_in_a_setting(folder: Path, name: str) -> None:
    (folder / "origami").rename(folder / name)
    refused(folder, r"the folder '.*' cannot be the name of a variant. Rename it with a-z, digits, '_' and '.'")


def test_two_files_of_one_name(folder: Path) -> None:
    save(drawn(3), folder / "original" / "a.bmp")
    refused(folder, r"original/a.bmp and a.png are both 'a'. Keep one of them")


def test_names_may_have_dots(folder: Path) -> None:
    save(drawn(3), folder / "original" / "x.1.png")
    save(drawn(13), folder / "origami" / "x.1.webp")
    save(drawn(14), folder / "starry_sky" / "x.1.png")
    perturbations.illusions(folder)
    np.testing.assert_array_equal(perturbations.get("illusion:starry_sky")(drawn(3), seed=1), drawn(14))


def test_a_folder_needs_no_neural_network(folder: Path) -> None:
    program = (
        "import sys\n"
        "from pytest_vlmrobust import perturbations\n"
        "perturbations.illusions(sys.argv[1]); perturbations.fingerprint('illusion:origami')\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in {'torch', 'diffusers', 'spandrel', 'transformers'}]\n"
        "assert not loaded, loaded\n"
        "assert not any('neural' in name for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)


def test_a_home_directory_that_there_is_not_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="there is no home directory of '~nobody-has-this-name'"):
        perturbations.illusions("~nobody-has-this-name/illusions")
