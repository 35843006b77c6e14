from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import BackendOptions, loading, resolve
from pytest_vlmrobust.backends import transformers as transformers_module
from pytest_vlmrobust.backends.loading import ModelSource, Placement, embed_by_matrix, limit_pixels, load_processor, quiet
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.prediction import Request

CLASSES = {
    "qwen2_vl": "Qwen2VLProcessor",
    "qwen2_5_vl": "Qwen2_5_VLProcessor",
    "qwen3_vl": "Qwen3VLProcessor",
    "internvl": "InternVLProcessor",
    "llava_onevision": "LlavaOnevisionProcessor",
    "gemma3": "Gemma3Processor",
    "idefics3": "Idefics3Processor",
}


def _load(folder: Path, image_backend: str = "pil") -> Any:
    with quiet():
        return load_processor(ModelSource(str(folder)), image_backend)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("family", CLASSES)
def test_every_family_loads_with_pillow_and_pads_left(checkpoint: Callable[[str], Path], family: str) -> None:
    processor = _load(checkpoint(family))
    assert type(processor).__name__ == CLASSES[family]
    assert processor.image_processor.backend == "pil"
    assert processor.tokenizer.padding_side == "left"
    assert "message" in processor.chat_template


def test_the_class_is_found_by_architecture_when_nothing_names_it(copied: Callable[[str], Path]) -> None:
    folder = copied("llava_onevision")
    _edit(folder / "processor_config.json", processor_class=None)
    _edit(folder / "preprocessor_config.json", processor_class=None)
    assert type(_load(folder)).__name__ == "LlavaOnevisionProcessor"


def test_a_tokenizer_without_padding_token_pads_with_its_end(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2_vl")
    _edit(folder / "tokenizer_config.json", pad_token=None)
    tokenizer = _load(folder).tokenizer
    assert tokenizer.pad_token == tokenizer.eos_token


def test_no_chat_template(copied: Callable[[str], Path]) -> None:
    folder = copied("gemma3")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(BackendError, match=r"gemma3: the checkpoint has no chat template.*Add chat_template\.jinja.*<start_of_"):
        _load(folder)


def test_a_missing_image_backend_is_never_replaced_in_silence(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(BackendError, match=r"has no 'torchvision' image backend \(it uses 'pil'\)"):
        _load(checkpoint("qwen2_vl"), "torchvision")


def _grid(processor: Any, side: int) -> list[int]:
    image = Image.fromarray(np.zeros((side, side, 3), np.uint8))
    return list(processor.image_processor(image, return_tensors="np")["image_grid_thw"][0])


def test_pixel_limits_change_what_the_model_sees(checkpoint: Callable[[str], Path]) -> None:
    processor = _load(checkpoint("qwen2_vl"))
    assert _grid(processor, 280) == [1, 8, 8]  # saved: at most 12,544 pixels, 112 x 112, in patches of 14
    assert _grid(processor, 28) == [1, 2, 2]
    limit_pixels(processor.image_processor, None, 56 * 56)
    assert _grid(processor, 280) == [1, 4, 4]
    limit_pixels(processor.image_processor, 56 * 56, None)
    assert _grid(processor, 28) == [1, 4, 4]


def test_no_limits_change_nothing(checkpoint: Callable[[str], Path]) -> None:
    processor = _load(checkpoint("idefics3"))
    limit_pixels(processor.image_processor, None, None)
    assert processor.image_processor.size["longest_edge"] == 56


def test_limits_where_they_do_not_apply(checkpoint: Callable[[str], Path]) -> None:
    expected = r"do not apply to Idefics3ImageProcessorPil, which resizes to \{'longest_edge': 56\}. Remove them"
    with pytest.raises(BackendError, match=expected):
        limit_pixels(_load(checkpoint("idefics3")).image_processor, None, 1000)


def test_limits_that_contradict_the_saved_ones(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(BackendError, match=r"min_pixels 99999 is above max_pixels 12544\. Set both"):
        limit_pixels(_load(checkpoint("qwen2_vl")).image_processor, 99999, None)


def test_patches_are_embedded_by_the_product_that_a_convolution_is() -> None:
    import torch

    torch.manual_seed(0)
    for bias in (True, False):
        model = torch.nn.Sequential(torch.nn.Conv3d(3, 16, (2, 5, 5), stride=(2, 5, 5), bias=bias))
        patches, larger = torch.randn(7, 3, 2, 5, 5), torch.randn(2, 3, 4, 10, 10)
        before, outside = model(patches), model(larger)
        embed_by_matrix(model)
        assert model(patches).shape == before.shape
        assert torch.allclose(model(patches), before, atol=1e-5)
        assert not torch.equal(model(patches + 1.0), before)
        assert torch.equal(model(larger), outside), "an input of several patches is convolved"


def test_other_convolutions_stay() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Conv3d(2, 4, 3, padding=1), torch.nn.Conv3d(4, 4, 1, groups=2))
    embed_by_matrix(model)
    assert [type(module) for module in model] == [torch.nn.Conv3d] * 2


@pytest.mark.parametrize(
    ("device", "dtype", "expected"), [("cpu", "float32", True), ("cpu", "bfloat16", False), ("cuda", "float32", False)]
)
def test_patches_are_embedded_by_product_where_that_was_measured(device: str, dtype: str, expected: bool) -> None:
    assert Placement(device, device, dtype, "auto", "pil").embeds_by_matrix is expected


# Python code that comes with a checkpoint: it runs where its entry in the models file says so, and nowhere else.


CODE = """
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration


class OurConfig(Qwen2VLConfig):
    model_type = "ours_vl"


class OurModel(Qwen2VLForConditionalGeneration):
    config_class = OurConfig
"""


@pytest.fixture
def with_code(copied: Callable[[str], Path]) -> Path:
    """A checkpoint that transformers knows by its own code alone."""
    from safetensors.torch import save_file
    from transformers import Qwen2VLForConditionalGeneration

    folder = copied("qwen2_vl")
    tensors = Qwen2VLForConditionalGeneration.from_pretrained(folder).state_dict()
    # names as the class has them: transformers renames those of families that it knows
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "modeling_ours.OurConfig", "AutoModelForImageTextToText": "modeling_ours.OurModel"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "ours_vl", "auto_map": classes}))
    (folder / "modeling_ours.py").write_text(CODE)
    return folder


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the code, which transformers imports, lie in a directory of the test."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.mark.usefixtures("modules")
def test_code_of_a_checkpoint_runs_where_its_entry_says_so(with_code: Path, request_for: Callable[..., Request]) -> None:
    ref = dataclasses.replace(resolve(str(with_code)), remote_code=True)
    backend = TransformersBackend(ref, BackendOptions(device="cpu"))
    (prediction,) = backend.infer([request_for("k", (40, 40))])
    assert (prediction.method, prediction.error) == ("letter_logits", "")
    assert backend.describe()["loaded"]["model_class"] == "OurModel"
    assert backend.fingerprint()["remote_code"] is True
    assert "modeling_ours.py" in backend.describe()["files_sha256"]
    (with_code / "modeling_ours.py").write_text(f"{CODE}\n# changed\n")
    assert TransformersBackend(ref, BackendOptions(device="cpu")).fingerprint()["weights"] != backend.fingerprint()["weights"]
    backend.close()


@pytest.mark.usefixtures("modules")
def test_code_of_a_checkpoint_does_not_run_where_its_entry_says_nothing(
    with_code: Path, request_for: Callable[..., Request]
) -> None:
    (with_code / "modeling_ours.py").write_text(f"import pathlib\npathlib.Path({str(with_code / 'ran')!r}).touch()\n{CODE}")
    backend = TransformersBackend(resolve(str(with_code)), BackendOptions(device="cpu"))
    with pytest.raises(BackendError, match="remote_code: true in its entry of the models file"):
        backend.infer([request_for("k", (40, 40))])
    assert not (with_code / "ran").exists()


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
def test_code_of_another_checkpoint_is_refused(with_code: Path, request_for: Callable[..., Request], file: str) -> None:
    content = json.loads((with_code / file).read_text())
    foreign = {"AutoTokenizer": [None, "other/name--tokens.Tokens"]} if file == "tokenizer_config.json" else {"X": "a/b--c.D"}
    (with_code / file).write_text(json.dumps({**content, "auto_map": {**content.get("auto_map", {}), **foreign}}))
    backend = TransformersBackend(dataclasses.replace(resolve(str(with_code)), remote_code=True), BackendOptions(device="cpu"))
    with pytest.raises(BackendError, match=r"runs code of another checkpoint .*, and its revision is unknown"):
        backend.infer([request_for("k", (40, 40))])


# What is wrong with a checkpoint is said by its name, and so is what of it is not used.


def _said(folder: Path, request: Request, **fields: Any) -> str:
    with pytest.raises(BackendError) as caught:
        _open(folder, **fields).infer([request])
    return str(caught.value)


def _open(folder: Path, notice: Callable[[str], None] = lambda _text: None, **fields: Any) -> TransformersBackend:
    options = BackendOptions(device="cpu", notice=notice)
    return TransformersBackend(dataclasses.replace(resolve(str(folder)), **fields), options)


def _with_tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_template_in_the_settings_of_the_tokenizer_is_used(
    copied: Callable[[str], Path], checkpoint: Callable[[str], Path], request_for: Callable[..., Request]
) -> None:
    folder = copied("internvl")
    template = folder / "chat_template.jinja"
    _edit(folder / "tokenizer_config.json", chat_template=template.read_text())
    template.unlink()
    requests = [request_for("a", (56, 56))]
    assert _open(folder).infer(requests) == _open(checkpoint("internvl")).infer(requests)


def test_a_template_for_text_alone_is_refused(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    folder = copied("internvl")
    (folder / "chat_template.jinja").unlink()
    _edit(folder / "tokenizer_config.json", chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}")
    assert "the chat template writes the list of parts of a message into the prompt" in _said(folder, request_for("a"))


def test_a_template_that_leaves_out_the_question_is_refused(
    copied: Callable[[str], Path], request_for: Callable[..., Request]
) -> None:
    template = (folder := copied("internvl")) / "chat_template.jinja"
    template.write_text(template.read_text().replace("part['text']", "part['value']"))
    assert "internvl: the chat template leaves out the question." in _said(folder, request_for("a"))


def test_a_tensor_of_another_shape_is_named(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    folder = copied("qwen2_vl")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["vocab_size"] += 5
    (folder / "config.json").write_text(json.dumps(config))
    said = _said(folder, request_for("a"))
    assert "hold 'lm_head.weight' with the shape (320, 32), and Qwen2VLForConditionalGeneration needs (325, 32)" in said
    assert "2 tensors of another shape" in said


@pytest.mark.parametrize("lost", ["tokenizer.json", "tokenizer_config.json tokenizer.json"])
def test_a_missing_tokenizer_is_named(copied: Callable[[str], Path], request_for: Callable[..., Request], lost: str) -> None:
    folder = copied("qwen2_vl")
    for name in lost.split():
        (folder / name).unlink()
    said = _said(folder, request_for("a"))
    assert "tokenizer.json" in said
    assert "issing" in said
    assert "image-text-to-text checkpoint" not in said


def test_tensors_that_are_not_used_are_said(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    import torch

    folder, said = copied("qwen2_vl"), list[str]()
    _with_tensors(folder, lambda tensors: tensors.update({f"head.{n}": torch.zeros(1) for n in range(5)}))
    (prediction,) = _open(folder, said.append).infer([request_for("a")])
    assert prediction.error == ""
    assert said == ["model 'qwen2_vl' does not use 5 tensors of its weights: head.0, head.1, head.2 and 2 more"]


def test_tensors_of_an_adapter_among_the_weights_are_refused(
    copied: Callable[[str], Path], request_for: Callable[..., Request]
) -> None:
    import torch

    folder = copied("qwen2_vl")
    name = "model.layers.0.self_attn.q_proj.lora_A.weight"
    _with_tensors(folder, lambda tensors: tensors.update({name: torch.zeros(1)}))
    said = _said(folder, request_for("a"))
    assert "hold 1 tensor of a LoRA adapter that would not be applied: model." in said
    assert "q_proj.lora_A.weight. Merge the adapter into the weights" in said


def test_a_model_that_ends_no_text_is_said(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    folder, said = copied("qwen2_vl"), list[str]()
    _edit(folder / "tokenizer_config.json", eos_token=None, pad_token=None)
    _edit(folder / "generation_config.json", eos_token_id=None)
    requests = [request_for("a", choices=(), max_new_tokens=3), request_for("b", text="Is it?", choices=(), max_new_tokens=3)]
    assert [answer.finish_reason for answer in _open(folder, said.append).infer(requests)] == ["length"] * 2
    (notice,) = said
    assert notice.startswith(
        "model 'qwen2_vl' has no token that ends a text (eos_token_id in generation_config.json, or eos_token"
    )


@pytest.mark.parametrize(
    ("config", "advice"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "pip install -U bitsandbytes"),
        ({"quant_method": "awq", "bits": 4}, "pip install gptqmodel"),
        ({"quant_method": "quanto"}, "pip install optimum-quanto"),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "Install it: pip install torchao"),
    ],
    ids=lambda value: value["quant_method"] if isinstance(value, dict) else "",
)
def test_the_library_of_a_quantised_checkpoint_is_named(
    copied: Callable[[str], Path],
    request_for: Callable[..., Request],
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    advice: str,
) -> None:
    from transformers.quantizers import quantizer_awq, quantizer_bnb_4bit, quantizer_quanto

    monkeypatch.setattr(quantizer_bnb_4bit, "is_bitsandbytes_available", lambda: False)
    monkeypatch.setattr(quantizer_awq, "is_gptqmodel_available", lambda: False)
    monkeypatch.setattr(quantizer_quanto, "is_optimum_quanto_available", lambda: False)
    monkeypatch.setitem(sys.modules, "torchao", None)
    folder = copied("qwen2_vl")
    _edit(folder / "config.json", quantization_config=config)
    said = _said(folder, request_for("a"))
    is_asked_first = advice.endswith("bitsandbytes") and importlib.util.find_spec("accelerate") is None
    assert ("accelerate" if is_asked_first else advice) in said
    assert "image-text-to-text checkpoint" not in said


# Adapters: layers beside those of a model, which peft made.


@pytest.fixture(scope="session")
def adapter(checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter of random numbers for the checkpoint of Qwen2-VL, with a copy of the model that it is merged into."""
    peft = pytest.importorskip("peft", reason="the extra adapter is not installed")
    import torch
    from transformers import AutoModelForImageTextToText

    folder = tmp_path_factory.mktemp("adapters") / "lora"
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(3)
        base = AutoModelForImageTextToText.from_pretrained(checkpoint("qwen2_vl"))
        config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "qkv"], init_lora_weights=False)
        model = peft.get_peft_model(base, config)
        model.save_pretrained(folder)
        shutil.copytree(checkpoint("qwen2_vl"), folder.with_name("merged"))
        model.merge_and_unload().save_pretrained(folder.with_name("merged"))
    return folder


def test_an_adapter_computes_what_it_does_merged(
    checkpoint: Callable[[str], Path], adapter: Path, request_for: Callable[..., Request]
) -> None:
    requests = [request_for(key, (56, 84)) for key in "abc"]
    of_base, merged = (_open(folder).infer(requests) for folder in (checkpoint("qwen2_vl"), adapter.with_name("merged")))
    opened = _open(checkpoint("qwen2_vl"), adapter=str(adapter))
    for alone, base, other in zip(opened.infer(requests), of_base, merged, strict=True):
        assert alone.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert alone.logprobs != pytest.approx(base.logprobs, abs=1e-2)
    fingerprint = opened.fingerprint()
    assert fingerprint["weights"] == _open(checkpoint("qwen2_vl")).fingerprint()["weights"]
    assert "peft" in fingerprint["versions"]
    assert "adapter/adapter_model.safetensors" in opened.describe()["files_sha256"]


def test_another_adapter_is_another_model(checkpoint: Callable[[str], Path], adapter: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(adapter, tmp_path / "other"))
    _edit(other / "adapter_config.json", lora_alpha=32)
    opened = [_open(checkpoint("qwen2_vl"), adapter=str(folder)) for folder in (adapter, other)]
    first, second = (backend.fingerprint() for backend in opened)
    assert first["adapter"] != second["adapter"]
    assert {**first, "adapter": ""} == {**second, "adapter": ""}


def test_the_directory_of_an_adapter_is_a_model_where_its_base_is_here(
    checkpoint: Callable[[str], Path], adapter: Path, request_for: Callable[..., Request]
) -> None:
    ref = resolve(str(adapter))
    assert (ref.name, ref.location, ref.adapter) == ("lora", str(checkpoint("qwen2_vl")), str(adapter))
    requests = [request_for("a", (56, 84))]
    named = _open(checkpoint("qwen2_vl"), adapter=str(adapter))
    assert TransformersBackend(ref, BackendOptions(device="cpu")).infer(requests) == named.infer(requests)


def test_an_adapter_made_for_a_model_of_another_name_is_said(
    checkpoint: Callable[[str], Path], adapter: Path, request_for: Callable[..., Request], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(checkpoint("qwen2_vl"), tmp_path / "another"))
    notes: list[str] = []
    for folder in (checkpoint("qwen2_vl"), other):
        ref = dataclasses.replace(resolve(str(folder)), adapter=str(adapter))
        TransformersBackend(ref, BackendOptions(device="cpu", notice=notes.append)).infer([request_for("a", (56, 84))])
    (note,) = notes
    assert note.endswith(f"runs an adapter that was made for {checkpoint('qwen2_vl')}. Check that {other} is the same model")


def test_a_changed_adapter_is_noticed(
    checkpoint: Callable[[str], Path], adapter: Path, request_for: Callable[..., Request], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "lora"))
    opened = _open(checkpoint("qwen2_vl"), adapter=str(folder))
    opened.fingerprint()
    (folder / "adapter_config.json").write_bytes((folder / "adapter_config.json").read_bytes())
    with pytest.raises(BackendError, match=rf"adapter_config\.json of {folder} changed after this run had fingerprinted it"):
        opened.infer([request_for("a")])


def test_an_adapter_of_another_model_is_refused(
    copied: Callable[[str], Path], adapter: Path, request_for: Callable[..., Request], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(adapter, tmp_path / "lora"))
    tensors = load_file(folder / "adapter_model.safetensors")
    first, second, *_ = sorted(tensors)
    tensors["base_model.model.model.elsewhere.lora_A.weight"] = tensors.pop(first)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    said = _said(copied("qwen2_vl"), request_for("a"), adapter=str(folder))
    assert "the adapter's weights at" in said
    assert "lack 1 tensor(s) that Qwen2VLForConditionalGeneration needs" in said
    tensors[first] = tensors["base_model.model.model.elsewhere.lora_A.weight"].clone()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    assert "hold 1 tensor that fit no layer" in _said(tmp_path / "qwen2_vl", request_for("a"), adapter=str(folder))
    del tensors["base_model.model.model.elsewhere.lora_A.weight"]
    tensors[second] = tensors[second].repeat(2, 1).contiguous()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    assert "with the shape (" in _said(tmp_path / "qwen2_vl", request_for("a"), adapter=str(folder))


# Devices: where weights go, and whether they fit.


def test_weights_that_are_loaded_to_a_device_answer_the_same(
    checkpoint: Callable[[str], Path], request_for: Callable[..., Request]
) -> None:
    pytest.importorskip("accelerate", reason="the extra device-map is not installed")
    requests = [request_for("a", (56, 84)), request_for("b", (28, 28), choices=(), max_new_tokens=4)]
    expected = _open(checkpoint("qwen2_vl")).infer(requests)
    for device_map in ("cpu", "auto"):
        assert _open(checkpoint("qwen2_vl"), device_map=device_map).infer(requests) == expected


def test_a_device_that_is_said_twice_is_said_once(checkpoint: Callable[[str], Path]) -> None:
    for device_map, device in (("cuda:1", "cpu"), ("auto", "cuda:1"), ("cpu", "cuda")):
        ref = dataclasses.replace(resolve(str(checkpoint("qwen2_vl"))), device_map=device_map)
        with pytest.raises(
            BackendError, match=f"device_map: {device_map} in the models file and --vlm-device {device} are not one"
        ):
            TransformersBackend(ref, BackendOptions(device=device)).fingerprint()


def test_a_missing_library_of_an_option_is_named(checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in {"accelerate", "bitsandbytes", "peft"}:
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(transformers_module, "version", version)
    for option, value, library in (
        ("device_map", "cpu", "accelerate"),
        ("quantization", "4bit", "bitsandbytes"),
        ("adapter", "x", "peft"),
    ):
        with pytest.raises(MissingExtra, match=rf"{option} of model 'qwen2_vl' needs the package '{library}'.*pip install"):
            _open(checkpoint("qwen2_vl"), **dict[str, Any]({option: value})).fingerprint()


@pytest.mark.parametrize(("name", "first", "second"), [("device_map", "cpu", "auto"), ("quantization", "4bit", "8bit")])
def test_two_values_of_an_option_are_two_models(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str, first: str, second: str
) -> None:
    monkeypatch.setattr(transformers_module, "version", lambda _name: "1")
    options: list[dict[str, Any]] = [{}, {name: first}, {name: second}]
    prints = [_open(checkpoint("qwen2_vl"), **fields).fingerprint() for fields in options]
    assert len({json.dumps(dict(each), sort_keys=True) for each in prints}) == 3


def test_the_memory_of_devices_is_no_part_of_a_model(checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_module, "version", lambda _name: "1")
    first, second = (
        _open(checkpoint("qwen2_vl"), device_map="auto", max_memory=most).fingerprint() for most in ({}, {"cpu": "1GiB"})
    )
    assert first == second


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
def test_weights_are_quantised_while_they_load(
    checkpoint: Callable[[str], Path], request_for: Callable[..., Request], capfd: pytest.CaptureFixture[str], quantization: str
) -> None:
    pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")
    requests = [request_for("a", (56, 84))]
    opened = _open(checkpoint("qwen2_vl"), quantization=quantization)
    capfd.readouterr()
    (answer,), (base,) = opened.infer(requests), _open(checkpoint("qwen2_vl")).infer(requests)
    assert answer.error == ""
    assert answer.logprobs != base.logprobs
    assert "bitsandbytes" in opened.fingerprint()["versions"]
    assert capfd.readouterr().err == ""


def test_a_checkpoint_is_not_quantised_twice(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")
    folder = copied("qwen2_vl")
    _edit(folder / "config.json", quantization_config={"quant_method": "awq", "bits": 4})
    assert "is quantised already. Remove 'quantization'" in _said(folder, request_for("a"), quantization="4bit")


def test_lanes_compute_with_the_hooks_that_move_numbers_between_devices(
    checkpoint: Callable[[str], Path], request_for: Callable[..., Request]
) -> None:
    accelerate = pytest.importorskip("accelerate", reason="the extra device-map is not installed")
    requests = [request_for("a", (56, 84)), request_for("b", (28, 28))]
    opened = _open(checkpoint("qwen2_vl"))
    expected = opened.infer(requests)
    answerer = opened._ready().answerer
    accelerate.dispatch_model(answerer._loaded.model, {"": "cpu"}, force_hooks=True)
    twin = answerer.twin()
    hooked = twin._loaded.model
    assert hooked._hf_hook is not answerer._loaded.model._hf_hook
    assert set(map(id, hooked.parameters())) == set(map(id, answerer._loaded.model.parameters()))
    batch = [opened._job(twin, place, opened.prepare(request)) for place, request in enumerate(requests)]
    inputs, details = twin.encoded(batch)
    assert twin.read(batch, twin.answer(batch, inputs), details) == expected


class _Spread:
    """A model of which is known where its parts are."""

    def __init__(self, *places: object) -> None:
        self.hf_device_map = dict(enumerate(places))


SPREAD = Placement("cuda", "auto", "bfloat16", "auto", "pil", device_map="auto")


def test_inputs_go_to_the_first_gpu_of_weights_that_are_spread() -> None:
    assert loading._devices_of(_Spread(1, 1, 0, "cpu"), SPREAD) == ("cuda:1", "cuda:0")
    assert loading._places(_Spread(1, "cpu")) == ["cuda:1", "cpu"]
    with pytest.raises(BackendError, match="no GPU has room for a part of the model"):
        loading._devices_of(_Spread("cpu"), SPREAD)
    assert SPREAD.spreads
    assert not dataclasses.replace(SPREAD, device="cpu").spreads


def test_several_processes_that_spread_weights_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    assert loading._spread_by_workers() == ""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    assert loading._spread_by_workers() == "is spread over all GPUs by each of 2 processes. Run it in one (without -n)"


LARGE = ModelSource("Qwen/Qwen2-VL-72B-Instruct", "0" * 40)


def _room(monkeypatch: pytest.MonkeyPatch, gpus: int, gigabytes: float, **placement: Any) -> str:
    free = {f"GPU {number}": int(gigabytes * 1e9) for number in range(gpus)}
    amounts = {"cuda": free, "cuda:0": {"GPU 0": free.get("GPU 0", 0)}, "cpu": {"the memory of this machine": int(64e9)}}
    monkeypatch.setattr(loading, "free_memory", amounts.__getitem__)
    try:
        loading._require_room(LARGE, dataclasses.replace(SPREAD, **placement))
    except BackendError as error:
        return str(error)
    return ""


def test_published_weights_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one = _room(monkeypatch, 4, 79.1, device="cuda:0", device_map="")
    assert on_one == (
        "Qwen/Qwen2-VL-72B-Instruct does not fit: its weights take 144 GB (72 billion parameters of 2 bytes), and GPU 0 has "
        "79.1 GB free. Write serve: vllm and engine: {tensor_parallel_size: N} in the models file; or serve it by 'vllm serve "
        "Qwen/Qwen2-VL-72B-Instruct --tensor-parallel-size N' ('vlmrobust serve-command qwen2-vl-72b' prints all of it); or "
        "spread it over the 4 GPUs, which have 316.4 GB free together: an entry of the models file with "
        "id: Qwen/Qwen2-VL-72B-Instruct and device_map: auto"
    )
    assert _room(monkeypatch, 1, 79.1, device="cuda:0", device_map="").endswith("' prints all of it)")
    on_cpu = _room(monkeypatch, 0, 0, device="cpu", dtype="float32", device_map="")
    assert "288 GB (72 billion parameters of 4 bytes), and the memory of this machine has 64.0 GB free" in on_cpu


def test_published_weights_that_fit_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _room(monkeypatch, 2, 79.1) == ""
    assert _room(monkeypatch, 1, 141, device="cuda:0", device_map="", quantization={"load_in_8bit": True}) == ""
    assert _room(monkeypatch, 1, 40, device="cuda:0", device_map="", quantization={"load_in_4bit": True}) == ""
    assert _room(monkeypatch, 1, 90) == "", "the rest waits in the memory of the machine"
    assert _room(monkeypatch, 1, 60).startswith("Qwen/Qwen2-VL-72B-Instruct does not fit")
    assert "and GPU 0 has 30.0 GB free. Write serve: vllm" in _room(monkeypatch, 1, 30, quantization={"load_in_4bit": True})


def test_a_name_that_does_not_fit_says_so_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, request_for: Callable[..., Request]
) -> None:
    ref = dataclasses.replace(resolve("qwen2-vl-72b"), revision="0" * 40)
    monkeypatch.setattr(loading, "free_memory", lambda _device: {"the memory of this machine": 10**10})
    monkeypatch.setattr(loading, "load_processor", lambda *_arguments: pytest.fail("something was loaded"))
    with pytest.raises(BackendError, match=r"288 GB \(72 billion parameters of 4 bytes\).*serve-command qwen2-vl-72b"):
        TransformersBackend(ref, BackendOptions(device="cpu", offline=True)).infer([request_for("a")])


def test_an_adapter_on_the_hub_is_refused(monkeypatch: pytest.MonkeyPatch, request_for: Callable[..., Request]) -> None:
    monkeypatch.setattr("transformers.utils.find_adapter_config_file", lambda *_place, **_where: "adapter_config.json")
    ref = dataclasses.replace(resolve("some/lora"), revision="0" * 40)
    with pytest.raises(BackendError, match=r"some/lora holds an adapter\. Download it .* and DIR as 'adapter'"):
        TransformersBackend(ref, BackendOptions(device="cpu", offline=True)).infer([request_for("a")])


def test_a_device_that_cannot_quantise_is_said(
    checkpoint: Callable[[str], Path], request_for: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")
    monkeypatch.setattr(bitsandbytes, "supported_torch_devices", {"cuda"})
    said = _said(checkpoint("qwen2_vl"), request_for("a"), quantization="4bit")
    assert "'cpu'" in said
    assert "are supported by the bitsandbytes version you have installed" in said
    assert said.endswith("Take a device that it supports, or leave 'quantization' out")


def test_a_processor_that_raises_names_its_file(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    folder = copied("qwen2_vl")
    file = "preprocessor_config.json" if (folder / "preprocessor_config.json").exists() else "processor_config.json"
    content = json.loads((folder / file).read_text())
    content.get("image_processor", content)["image_mean"] = None
    (folder / file).write_text(json.dumps(content))
    backend = TransformersBackend(resolve(str(folder)), BackendOptions(device="cpu"))
    (prediction,) = backend.infer([request_for("k", (40, 40))])
    assert "image_mean" in prediction.error
    assert f"check its settings in {folder}/" in prediction.error


def test_a_processor_without_a_setting_names_it(copied: Callable[[str], Path], request_for: Callable[..., Request]) -> None:
    folder = copied("llava_onevision")
    _edit(folder / "processor_config.json", num_image_tokens=None, vision_feature_select_strategy=None)
    (prediction,) = TransformersBackend(resolve(str(folder)), BackendOptions(device="cpu")).infer([request_for("k", (40, 40))])
    assert "check its settings (num_image_tokens and vision_feature_select_strategy not set) in" in prediction.error
