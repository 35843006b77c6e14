"""Tiny, randomly initialised encoders of real architectures, laid out as the hub lays them out."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file

from pytest_vlmrobust.core.errors import DatasetError, ImageError, MissingExtra, ModelError
from pytest_vlmrobust.datasets import neural as module
from pytest_vlmrobust.datasets.faces_folder import FaceFolder, circles, unit_rows, write_table
from pytest_vlmrobust.datasets.faces_folder_table import EncoderName
from pytest_vlmrobust.datasets.neural import BATCH, EYES, LIPS, NOSE, ImageEncoder, boxes_of

VISION: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 20,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
SQUARE = {"height": 28, "width": 28}


def _model(kind: str) -> tuple[Any, dict[str, Any]]:
    import transformers

    if kind == "clip":
        config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=12)
        return transformers.CLIPModel(config), {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 28},
            "crop_size": SQUARE,
        }
    if kind == "siglip":
        config = transformers.SiglipConfig(text_config=TEXT, vision_config=VISION)
        return transformers.SiglipModel(config), {"image_processor_type": "SiglipImageProcessor", "size": SQUARE}
    if kind in {"vit", "vit_without_pooler"}:
        model = transformers.ViTModel(transformers.ViTConfig(**VISION), add_pooling_layer=kind == "vit")
        return model, {"image_processor_type": "ViTImageProcessor", "size": SQUARE}
    if kind == "dinov2":
        config = transformers.Dinov2Config(**{**VISION, "mlp_ratio": 2})
        return transformers.Dinov2Model(config), {
            "image_processor_type": "BitImageProcessor",
            "size": {"shortest_edge": 28},
            "crop_size": SQUARE,
        }
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return transformers.ResNetModel(config), {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 28}}


@pytest.fixture
def encoder(tmp_path: Path) -> Callable[[str], Path]:
    """Saves an encoder of a kind into a folder of its own."""

    def build(kind: str) -> Path:
        import torch

        folder = tmp_path / kind
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # of the library, while it initialises and saves
            torch.manual_seed(3)
            model, processor = _model(kind)
            for weight in model.parameters():  # larger than usual, so that pictures differ visibly
                if weight.dim() > 1:
                    torch.nn.init.normal_(weight, std=0.2)
            model.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
        return folder

    return build


People = Callable[..., Path]
Encoder = Callable[[str], Path]
WIDTHS = {"clip": 12, "siglip": 16, "vit": 16, "vit_without_pooler": 16, "dinov2": 16, "resnet": 16}


def pictures(count: int) -> list[NDArray[np.uint8]]:
    return list(np.random.default_rng(5).integers(0, 256, (count, 40, 40, 3), dtype=np.uint8))


def opened(folder: Path) -> ImageEncoder:
    return ImageEncoder.of(EncoderName(folder.name, folder=folder))


@pytest.mark.parametrize("kind", WIDTHS)
def test_one_embedding_of_each_picture_whatever_the_batch(encoder: Encoder, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(encoder(kind))
    shown = pictures(BATCH + 2)
    embeddings = model.embed(iter(shown))
    assert embeddings.shape == (BATCH + 2, WIDTHS[kind])
    assert embeddings.dtype == np.float32
    monkeypatch.setattr(module, "BATCH", 5)
    np.testing.assert_allclose(model.embed(shown[::-1])[::-1], embeddings, atol=1e-5)
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
    model = opened(encoder("vit_without_pooler"))
    before = torch.random.get_rng_state()
    model.embed(pictures(1))
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
        self.calls: list[dict[str, Any]] = []

    def __call__(self, _id: str, *, local_files_only: bool, **arguments: Any) -> str:
        self.calls.append(arguments)
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
    image_encoder = ImageEncoder.of(EncoderName("org/name@v2", id="org/name", revision="v2"))
    assert image_encoder.name == f"encoder:org/name@{COMMIT[:12]}"
    assert image_encoder.embed(pictures(1)).shape == (1, 16)
    (call,) = hub.calls
    assert call["revision"] == "v2"


def test_what_the_cache_lacks_is_downloaded(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half").mkdir()
    hub = Hub(tmp_path / "half", encoder("siglip"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    assert ImageEncoder.of(EncoderName("org/name", id="org/name")).folder.name == "siglip"
    assert [call["revision"] for call in hub.calls] == [None, None]
    hub.remote = tmp_path / "half"
    with pytest.raises(ModelError, match=r"encoder 'org/name' of the hub lacks config\.json and image processor settings"):
        ImageEncoder.of(EncoderName("org/name", id="org/name"))
    assert hub.calls[-1]["allow_patterns"][-2:] == ["*.safetensors", "pytorch_model*.bin"]


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


Points = NDArray[np.float64]
# outer and inner corner, upper and lower lid; bridge, wings, base; corners and edges of the lips
RIGHT_EYE = {33: (0.25, 0.40), 133: (0.42, 0.41), 159: (0.33, 0.36), 145: (0.33, 0.45)}
LEFT_EYE = {263: (0.75, 0.40), 362: (0.58, 0.41), 386: (0.67, 0.36), 374: (0.67, 0.45)}
OF_NOSE = {168: (0.50, 0.40), 48: (0.42, 0.60), 278: (0.58, 0.61), 2: (0.50, 0.64)}
OF_MOUTH = {61: (0.35, 0.78), 291: (0.66, 0.78), 0: (0.50, 0.72), 17: (0.50, 0.86)}
EXPECTED = {
    "left_eye": (50, 36, 84, 45),
    "right_eye": (116, 36, 150, 45),
    "nose": (84, 40, 116, 64),
    "mouth": (70, 72, 132, 86),
}
"""In 200 x 100 pixels."""


def mesh(count: int = 478) -> Points:
    """Returns a face whose known points stand at the ends of each attribute, all other points of it in its middle."""
    points = np.tile([0.02, 0.99], (count, 1))  # what belongs to no attribute must not matter
    for numbers, ends in zip((*EYES, NOSE, LIPS), (RIGHT_EYE, LEFT_EYE, OF_NOSE, OF_MOUTH), strict=True):
        points[list(numbers)] = np.mean(list(ends.values()), axis=0)
        for number, place in ends.items():
            points[number] = place
    return points


def moved(down: float) -> Points:
    """Returns a face that stands lower by a part of the picture's height."""
    points: Points = mesh() + np.array([0, down])
    return points


@pytest.fixture
def mediapipe(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for the package: finds the ``faces`` that a test sets, and remembers what it was given."""
    seen = SimpleNamespace(faces=[mesh()], models=[], pictures=[], wanted=[], closed=0)

    class Landmarker:
        @staticmethod
        def create_from_options(options: SimpleNamespace) -> Landmarker:
            if options.base_options.model_asset_buffer == b"bad":
                raise RuntimeError("Unable to open zip archive.\nmore")
            seen.models.append(options.base_options.model_asset_buffer)
            seen.wanted.append(options.num_faces)
            return Landmarker()

        def detect(self, image: SimpleNamespace) -> SimpleNamespace:
            seen.pictures.append(image)
            return SimpleNamespace(face_landmarks=[[SimpleNamespace(x=x, y=y, z=0) for x, y in face] for face in seen.faces])

        def close(self) -> None:
            seen.closed += 1

    _install(monkeypatch, Landmarker)
    return seen


def _install(monkeypatch: pytest.MonkeyPatch, landmarker: type) -> None:
    parts: dict[str, dict[str, Any]] = {
        "mediapipe": {"Image": SimpleNamespace, "ImageFormat": SimpleNamespace(SRGB="srgb")},
        "mediapipe.tasks": {},
        "mediapipe.tasks.python.vision": {"FaceLandmarker": landmarker, "FaceLandmarkerOptions": SimpleNamespace},
        "mediapipe.tasks.python": {"BaseOptions": SimpleNamespace},
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["mediapipe.tasks.python"].__dict__["vision"] = sys.modules["mediapipe.tasks.python.vision"]


def bare(people: People, groups: Sequence[str], model: str = "face.task") -> Path:
    folder = people(groups, boxes=False)
    (folder / "faces.yaml").write_text("landmarks: face.task\n")
    if model:
        (folder / model).write_bytes(b"a model")
    return folder


def approximately(boxes: Any) -> Any:
    return {name: pytest.approx(box) for name, box in boxes.items()}


def test_boxes_are_the_ends_of_the_attributes() -> None:
    assert boxes_of(mesh(), (200, 100)) == approximately(EXPECTED)
    assert boxes_of(mesh(468), (200, 100)) == approximately(EXPECTED)


def test_left_and_right_are_the_viewers_in_a_mirrored_picture_too() -> None:
    mirrored = mesh() * [-1, 1] + [1, 0]
    boxes = boxes_of(mirrored, (200, 100))
    assert {name: boxes[name] for name in ("left_eye", "right_eye")} == approximately(
        {"left_eye": EXPECTED["left_eye"], "right_eye": EXPECTED["right_eye"]}
    )
    assert boxes["mouth"] == pytest.approx((200 - 132, 72, 200 - 70, 86))


def test_boxes_end_with_the_picture_and_what_is_outside_has_none() -> None:
    low = moved(0.2)
    assert boxes_of(low, (200, 100))["mouth"] == pytest.approx((70, 92, 132, 100))
    assert {*boxes_of(moved(0.3), (200, 100))} == {"left_eye", "right_eye", "nose"}


def test_a_folder_without_boxes_asks_for_them_once(people: People, mediapipe: SimpleNamespace, tmp_path: Path) -> None:
    folder = bare(people, ["light", "dark"])
    collection = FaceFolder(folder, "crew")
    for entity in (*collection.entities(), *collection.entities()):
        assert entity.boxes == approximately(boxes_of(mesh(), (96, 96)))
    assert (mediapipe.models, mediapipe.wanted, mediapipe.closed, len(mediapipe.pictures)) == ([b"a model"], [2], 1, 2)
    assert mediapipe.pictures[1].image_format == "srgb"
    np.testing.assert_array_equal(mediapipe.pictures[1].data, collection.entities()[1].image.load())
    write_table(folder, tmp_path / "faces.csv")
    mediapipe.faces = []
    assert [entity.boxes for entity in FaceFolder(tmp_path, "x").entities()] == [entity.boxes for entity in collection.entities()]


def test_boxes_in_the_table_are_left_as_they_are(people: People, mediapipe: SimpleNamespace) -> None:
    folder = people(["light", "dark"])
    (folder / "faces.yaml").write_text("landmarks: face.task\n")
    assert FaceFolder(folder, "crew").entities()[0].boxes["nose"] == (42, 44, 54, 60)  # not even the model is asked for
    assert not mediapipe.pictures


@pytest.mark.parametrize(
    ("faces", "count"),
    [
        ([], "no face"),
        ([mesh(), mesh()], "several faces"),
        ([moved(0.3)], "a face that is partly outside of the image"),
    ],
)
def test_pictures_without_one_whole_face(people: People, mediapipe: SimpleNamespace, faces: list[Points], count: str) -> None:
    mediapipe.faces = faces
    folder = bare(people, ["light", "dark"])
    with pytest.raises(DatasetError) as caught:
        FaceFolder(folder, "crew").entities()
    first, *lines = str(caught.value).splitlines()
    assert "faces.csv has 2 problems" in first
    assert lines[1] == (
        f"  {folder / 'faces.csv'}:3, file '1.png': MediaPipe found {count} in {folder / '1.png'}, expected one face. Write its "
        "boxes into the table, crop the image, or remove the row"
    )
    assert mediapipe.closed == 1


def test_an_absent_model_file_is_named_with_where_it_was_looked_for(people: People) -> None:
    folder = bare(people, ["light", "dark"], model="")
    with pytest.raises(DatasetError) as caught:
        FaceFolder(folder, "crew").entities()
    assert str(caught.value) == (
        f"{folder / 'faces.yaml'}, landmarks: there is no file {folder / 'face.task'}. 2 rows of {folder / 'faces.csv'} have no "
        f"boxes (the first: {folder / 'faces.csv'}:2, file '0.png'). Expected a face landmarker of MediaPipe (.task) there, or "
        "boxes in the table"
    )


def test_without_the_package_there_is_the_pip_line(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mediapipe", None)
    with pytest.raises(MissingExtra) as caught:
        FaceFolder(bare(people, ["light"]), "crew").entities()
    assert str(caught.value).startswith(
        "finding the boxes of faces needs the package 'mediapipe', which is not installed. Install it: pip install 'mediapipe>="
    )


@pytest.mark.usefixtures("mediapipe")
def test_a_file_that_is_no_model(people: People) -> None:
    folder = bare(people, ["light"])
    (folder / "face.task").write_bytes(b"bad")
    with pytest.raises(
        ModelError, match=r"cannot find faces with .*face\.task \(RuntimeError: Unable to open zip archive\.\)\. Expected"
    ):
        FaceFolder(folder, "crew").entities()


def test_a_model_with_other_landmarks(people: People, mediapipe: SimpleNamespace) -> None:
    mediapipe.faces = [mesh()[:98]]
    with pytest.raises(ModelError, match=r"puts 98 landmarks on a face\. Expected 468 or more, as MediaPipe's face mesh has"):
        FaceFolder(bare(people, ["light"]), "crew").entities()
    assert mediapipe.closed == 1
