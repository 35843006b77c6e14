"""Embeddings by randomly initialised encoders: the machinery, and nothing about what looks alike."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from pytest_vlmrobust.core.errors import ImageError, ModelError
from pytest_vlmrobust.datasets import neural as module
from pytest_vlmrobust.datasets.faces_folder import FaceFolder
from pytest_vlmrobust.datasets.faces_folder_table import EncoderName
from pytest_vlmrobust.datasets.neural import BATCH, ImageEncoder
from pytest_vlmrobust.datasets.similarity import circles, unit_rows

People = Callable[..., Path]
Encoder = Callable[[str], Path]
WIDTHS = {"clip": 12, "siglip": 16, "vit": 16, "vit_without_pooler": 16, "dinov2": 16, "resnet": 16}


def pictures(count: int) -> list[NDArray[np.uint8]]:
    return list(np.random.default_rng(5).integers(0, 256, (count, 40, 40, 3), dtype=np.uint8))


def opened(folder: Path) -> ImageEncoder:
    return ImageEncoder.of(EncoderName(folder.name, folder=folder))


@pytest.mark.parametrize("kind", WIDTHS)
def test_one_embedding_of_each_picture_whatever_the_batch(encoder: Encoder, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(encoder(kind))
    shown = pictures(BATCH + 2)
    embeddings = found.embed(iter(shown))
    assert embeddings.shape == (BATCH + 2, WIDTHS[kind])
    assert embeddings.dtype == np.float32
    monkeypatch.setattr(module, "BATCH", 5)
    np.testing.assert_allclose(found.embed(shown[::-1])[::-1], embeddings, atol=1e-5)
    assert np.std(embeddings, axis=0).max() > 1e-3


def test_a_dual_encoder_gives_what_it_compares_with_text(encoder: Encoder) -> None:
    folder = encoder("clip")
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    shown = pictures(3)
    with torch.inference_mode():
        inputs = processor(images=[Image.fromarray(picture) for picture in shown], return_tensors="pt")
        pooled = model.vision_model(**inputs).pooler_output
        expected = model.visual_projection(pooled).numpy()
    np.testing.assert_allclose(opened(folder).embed(shown), expected, atol=1e-6)


def test_an_encoder_whose_pooling_has_no_weights_gives_the_mean_of_its_last_hidden_states(encoder: Encoder) -> None:
    folder = encoder("vit_without_pooler")
    model = transformers.ViTModel.from_pretrained(folder, add_pooling_layer=False).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    shown = pictures(2)
    with torch.inference_mode():
        inputs = processor(images=[Image.fromarray(picture) for picture in shown], return_tensors="pt")
        expected = model(**inputs).last_hidden_state.mean(dim=1).numpy()
    np.testing.assert_allclose(opened(folder).embed(shown), expected, atol=1e-6)


def test_global_random_numbers_stay_as_they_were(encoder: Encoder) -> None:
    found = opened(encoder("vit_without_pooler"))
    before = torch.random.get_rng_state()
    found.embed(pictures(1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_half_precision_weights_are_computed_with_in_full(encoder: Encoder) -> None:
    folder = encoder("siglip")
    transformers.SiglipModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.float16}
    _, model, _ = opened(folder)._load_model()
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_the_name_has_the_start_of_the_digest_of_what_decides(encoder: Encoder) -> None:
    folder = encoder("siglip")
    before = opened(folder)
    assert before.name == f"encoder:siglip@{before.digest[:12]}"
    (folder / "README.md").write_text("about")
    assert opened(folder).digest == before.digest
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "SiglipImageProcessor"}')
    assert opened(folder).digest != before.digest


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("config.json", "config.json"),
        ("preprocessor_config.json", r"image processor settings \(preprocessor_config\.json\)"),
        ("model.safetensors", r"weights \(\*\.safetensors or pytorch_model\*\.bin\)"),
    ],
)
def test_a_folder_that_lacks_a_part(encoder: Encoder, file: str, part: str) -> None:
    folder = encoder("siglip")
    (folder / file).unlink()
    with pytest.raises(ModelError, match=rf"encoder .*siglip lacks {part}\. Save it again with its image processor, in full"):
        opened(folder)


def test_weights_that_are_missing_or_damaged(encoder: Encoder) -> None:
    folder = encoder("clip")
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"lacks 1 tensor\(s\) that CLIPModel needs, such as visual_projection\.weight\. Save or"
    ):
        opened(folder).embed(pictures(1))
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(
        ModelError, match=r"encoder .*clip cannot embed images \(\w+: .*Expected a checkpoint of an image encoder"
    ):
        opened(folder).embed(pictures(1))


def test_weights_that_are_not_finite(encoder: Encoder) -> None:
    folder = encoder("siglip")
    weights = load_file(folder / "model.safetensors")
    weights["vision_model.post_layernorm.bias"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"makes 1 embeddings of 1 images, or some that are not finite\. Expected one for each"):
        opened(folder).embed(pictures(1))


class Hub:
    """Stands in for ``snapshot_download``: what is in the cache and what the hub has are folders."""

    def __init__(self, cached: Path | None, remote: Path | Exception) -> None:
        self.cached, self.remote = cached, remote
        self.asked: list[dict[str, Any]] = []

    def __call__(self, _id: str, *, local_files_only: bool, **arguments: Any) -> str:
        self.asked.append(arguments)
        if local_files_only:
            if self.cached is None:
                raise FileNotFoundError("not cached")
            return str(self.cached)
        if isinstance(self.remote, Exception):
            raise self.remote
        return str(self.remote)


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_hub_id_is_taken_from_the_cache_before_the_hub_is_asked(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = shutil.copytree(encoder("siglip"), tmp_path / COMMIT)
    hub = Hub(snapshot, RuntimeError("not to be asked"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    found = ImageEncoder.of(EncoderName("org/name@v2", id="org/name", revision="v2"))
    assert found.name == f"encoder:org/name@{COMMIT[:12]}"
    assert found.embed(pictures(1)).shape == (1, 16)
    (asked,) = hub.asked
    assert asked["revision"] == "v2"


def test_what_the_cache_lacks_is_downloaded(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half").mkdir()
    hub = Hub(tmp_path / "half", encoder("siglip"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert ImageEncoder.of(EncoderName("org/name", id="org/name")).folder.name == "siglip"
    assert [asked["revision"] for asked in hub.asked] == [None, None]
    hub.remote = tmp_path / "half"
    with pytest.raises(ModelError, match=r"encoder 'org/name' of the hub lacks config\.json and image processor settings"):
        ImageEncoder.of(EncoderName("org/name", id="org/name"))
    assert hub.asked[-1]["allow_patterns"][-2:] == ["*.safetensors", "pytorch_model*.bin"]


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(None, ConnectionError("no route\nmore")))
    with pytest.raises(ModelError) as caught:
        ImageEncoder.of(EncoderName("org/name", id="org/name"))
    assert str(caught.value) == (
        "encoder 'org/name' is not a folder, is not in full in the local cache of the hub, and the hub did not give it "
        "(ConnectionError: no route). Check the id and the network; or download it beforehand: hf download org/name"
    )


def test_neighbours_in_a_folder_are_those_of_the_encoder_and_it_is_loaded_once(
    people: People, encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = people(["light"] * 5)
    plain = FaceFolder(folder, "crew")
    before = plain.digest
    model = shutil.copytree(encoder("clip"), folder / "clip")
    (folder / "faces.yaml").write_text("encoder: clip\n")
    collection = FaceFolder(folder, "crew")
    calls: list[Path] = []
    loaded = ImageEncoder._load_model

    def counted(self: ImageEncoder) -> tuple[Any, Any, bool]:
        calls.append(self.folder)
        return loaded(self)

    monkeypatch.setattr(ImageEncoder, "_load_model", counted)
    rows = opened(model).embed(entity.image.load() for entity in collection.entities())
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    entities = collection.entities()
    together = circles(unit_rows(rows), [entity.group for entity in entities], 3)
    assert together
    for members in together:
        for place in members:
            shown = {picture.identity() for picture in collection.neighbours(entities[place], 2)}
            assert shown == {entities[other].image.identity() for other in members if other != place}
    assert calls == [model, folder / "clip"]
    assert collection.neighbours_by == f"encoder:clip@{opened(model).digest[:12]}"
    assert collection.digest != before


def test_a_picture_that_is_gone_is_not_blamed_on_the_encoder(people: People, encoder: Encoder) -> None:
    folder = people(["light"] * 3)
    shutil.copytree(encoder("siglip"), folder / "siglip")
    (folder / "faces.yaml").write_text("encoder: siglip\n")
    collection = FaceFolder(folder, "crew")
    entity = collection.entities()[0]
    (folder / "1.png").unlink()
    with pytest.raises(ImageError, match=r"1\.png cannot be read"):
        collection.neighbours(entity, 2)
