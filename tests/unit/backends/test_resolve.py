from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.backends import BackendOptions, backends, failed_prediction, model_id, model_ids, open_backend, resolve
from pytest_vlmrobust.backends.contract import Backend
from pytest_vlmrobust.backends.models_file import PUBLISHED
from pytest_vlmrobust.backends.resolve import MODELS, names
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import ModelError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _checkpoint(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_an_entry_of_the_models_file_comes_first(here: Path) -> None:
    models = here / "models.yaml"
    models.write_text("models: {qwen2-vl-2b: {path: mine}}")
    assert resolve("qwen2-vl-2b", models_file=models).location == str(here / "mine")
    assert resolve("qwen2-vl-2b").location == "Qwen/Qwen2-VL-2B-Instruct"


def test_a_built_in_name_comes_before_a_directory(here: Path) -> None:
    _checkpoint(here / "qwen2-vl-2b")
    assert resolve("qwen2-vl-2b").location == "Qwen/Qwen2-VL-2B-Instruct"
    assert resolve("./qwen2-vl-2b").location == str(here / "qwen2-vl-2b")


def test_a_directory_comes_before_a_hub_id(here: Path) -> None:
    assert resolve("org/name").location == "org/name"
    _checkpoint(here / "org" / "name")
    assert resolve("org/name").location == str(here / "org" / "name")


def test_the_embedded_model_brings_its_policy() -> None:
    ref = resolve("tiny")
    assert (ref.name, ref.backend, ref.policy) == ("tiny", "transformers", "tiny")
    assert Path(ref.location).name == "tiny"
    assert Path(ref.location).is_absolute()


@pytest.mark.cases("name", [name for name in names() if name in MODELS or not PUBLISHED[name].is_served])
def test_every_built_in_name_is_its_own_test_id(name: str) -> None:
    ref = resolve(name)
    assert ref is not None
    assert ref.name == name == model_id(name)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


def test_a_scripted_file(here: Path) -> None:
    (here / "answers.yaml").write_text("default: A")
    ref = resolve("scripted:answers.yaml")
    assert (ref.name, ref.backend, ref.location) == ("answers", "scripted", str(here / "answers.yaml"))


def test_the_answer_option_outranks_the_entry(here: Path) -> None:
    models = here / "models.yaml"
    models.write_text("models: {m: {path: x, answer: letters}}")
    assert [resolve("m", models_file=models, answer=answer).answer for answer in ("", "text")] == ["letters", "text"]


def test_the_dtype_option_outranks_the_entry(here: Path) -> None:
    models = here / "models.yaml"
    models.write_text("models: {m: {path: x, dtype: bfloat16}}")
    assert resolve("m", models_file=models).dtype == "bfloat16"
    assert resolve("m", models_file=models, dtype="float32").dtype == "float32"
    with pytest.raises(ModelError, match=r"--vlm-dtype: unknown dtype 'float23'. Did you mean 'float32'\?"):
        resolve("m", models_file=models, dtype="float23")


def test_an_unknown_name_explains_the_order(here: Path) -> None:
    models = here / "models.yaml"
    models.write_text("models: {ours: {path: x}}")
    with pytest.raises(UnknownName) as caught:
        resolve("qwen2-vl-2", models_file=models)
    message = str(caught.value)
    assert message.startswith("unknown model 'qwen2-vl-2'. Did you mean 'qwen2-vl-2b'?")
    assert "ours" in message
    places = ["models file", "built-in", "openai:", "scripted:", "local checkpoint directory", "hub id"]
    assert [message.index(place) for place in places] == sorted(message.index(place) for place in places)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai:localhost#m", "'localhost' is not a base URL. Expected BASE_URL#MODEL or BASE_URL#MODEL@REVISION, such as"),
        ("openai:http://localhost:8000/v1", "expected BASE_URL#MODEL or BASE_URL#MODEL@REVISION, such as"),
        ("openai:http://localhost:8000/v1#", "expected BASE_URL#MODEL"),
        ("openai:http://localhost:8000/v1#m@", "expected BASE_URL#MODEL"),
        ("openai:http://localhost:8000/v1,http://#m", "'http:' is not a base URL"),
        ("http://localhost:8000/v1", "a URL alone names no model"),
        ("scripted:nowhere.yaml", "there is no file 'nowhere.yaml'"),
        ("./nowhere", "there is no directory 'nowhere'"),
        ("/nowhere/at/all", "there is no directory '/nowhere/at/all'"),
        ("a/b/c", "there is no directory 'a/b/c'"),
    ],
)
def test_what_cannot_be_used_says_why(here: Path, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"^--vlm {re.escape(repr(name))}: {re.escape(message)}"):
        resolve(name)


@pytest.mark.cases(
    ("name", "message"),
    [
        ("openai:https://me:pa55word@host/v1#m", "'openai:https://...#m': a base URL has a user or a password before the host"),
        ("openai:https://me:pa55@word@host/v1", "'openai:https://...': expected BASE_URL#MODEL"),
        ("openai:http://host/v1?key=pa55word#m@r", "'openai:http://host/v1#m@r': the base URL 'http://host/v1' has a query"),
        ("openai:http://host/v1,http://b?key=pa55,word#m", "'openai:http://host/v1,http://b#m': the base URL 'http://b' has"),
        ("openai:host/v1?key=pa55word#m", "'openai:host/v1#m': the base URL 'host/v1' has a query"),
        ("openai:host/v1?key=pa55word", "'openai:host/v1': expected BASE_URL#MODEL"),
        ("openai:http://[host/v1?key=pa55word#m", "'openai:http://[host/v1#m': 'http://[host/v1' is not a base URL"),
        ("http://host/v1?key=pa55word#m", "'http://host/v1#m': a URL alone names no model"),
        ("http://me:pa55word@host/v1", "'http://...': a URL alone names no model"),
    ],
)
def test_a_key_in_a_url_is_refused_and_not_repeated(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"^--vlm {re.escape(message)}") as caught:
        resolve(name)
    assert "pa55" not in str(caught.value)
    assert "word#" not in str(caught.value)


def test_a_served_model_is_its_urls_its_name_there_and_its_declared_revision() -> None:
    ref = resolve("openai:http://a:8000/v1/,http://b:8000/v1#org/model@2024-06-01")
    assert (ref.name, ref.backend, ref.revision) == ("model", "openai", "2024-06-01")
    assert ref.location == "http://a:8000/v1,http://b:8000/v1#org/model"
    assert resolve("openai:http://a/v1#m").revision == ""


def test_a_directory_that_is_no_checkpoint_lists_what_is_missing(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        resolve("run")
    message = str(caught.value)
    assert "Missing: config.json; weights (model.safetensors" in message
    assert "preprocessor_config.json" in message
    assert "a tokenizer" not in message
    assert message.endswith("It holds: tokenizer.json")
    for saved_at, step in enumerate(("checkpoint-1500", "checkpoint-500")):
        (here / "run" / step).mkdir()
        (here / "run" / step / "config.json").write_text("{}")
        os.utime(here / "run" / step, (0, 1000 - saved_at))
    with pytest.raises(ModelError, match=r"Name a checkpoint in it, such as 'run/checkpoint-1500'$"):
        resolve("run")


def test_an_adapter_alone_says_what_to_do_where_its_base_is_not_here(here: Path) -> None:
    folder = here / "lora"
    folder.mkdir()
    config = folder / "adapter_config.json"
    config.write_text('{"base_model_name_or_path": "some/model"}')
    (here / "models.yaml").write_text("models: {ours: {path: lora}}")
    for name, models_file in (("lora", None), ("ours", here / "models.yaml")):
        with pytest.raises(ModelError) as caught:
            resolve(name, models_file=models_file)
        assert f"model {name!r}: {str(folder)!r} holds an adapter alone, made for some/model, which is no directory here" in str(
            caught.value
        )
        assert "the model as 'path', or as 'id' with its 'revision', and this directory as 'adapter'" in str(caught.value)
    config.write_text("{}")
    with pytest.raises(ModelError, match="made for a model that it does not name"):
        resolve("lora")
    config.write_text("{")
    with pytest.raises(ModelError, match="not the configuration of an adapter"):
        resolve("lora")
    (here / "models.yaml").write_text("models: {ours: {id: some/model, adapter: lora}}")
    ref = resolve("ours", models_file=here / "models.yaml")
    assert (ref.location, ref.adapter) == ("some/model", str(folder))


@pytest.mark.cases(
    ("name", "short"),
    [
        ("tiny", "tiny"),
        ("Qwen/Qwen2-VL-2B-Instruct", "Qwen2-VL-2B-Instruct"),
        ("/models/ours v3/", "ours-v3"),
        ("./checkpoints/step=200", "step-200"),
        ("runs/final/", "final"),
        ("scripted:some/answers.v2.yaml", "answers.v2"),
        ("openai:http://host:8000/v1#org/model:free", "model-free"),
        ("openai:http://host:8000/v1,http://other/v1#org/model@2024/06", "model"),
        ("///", "model"),
    ],
)
def test_model_ids_are_short_and_safe(name: str, short: str) -> None:
    assert model_id(name) == short


def test_the_current_directory_has_a_name(here: Path) -> None:
    assert model_id(".") == re.sub(r"[^A-Za-z0-9._-]+", "-", here.name)


def test_resolved_names_are_the_ids(here: Path) -> None:
    _checkpoint(here / "a b")
    assert resolve("./a b").name == model_id("./a b") == "a-b"


def test_the_same_model_twice_is_refused() -> None:
    assert model_ids(["tiny", "Qwen/a", "b"]) == ["tiny", "a", "b"]
    with pytest.raises(ModelError, match=r"--vlm './x/a' and --vlm 'Qwen/a' would both be called 'a' in test ids"):
        model_ids(["Qwen/a", "./x/a"])


def _ref(backend: str, **fields: Any) -> ModelRef:
    return ModelRef(name="m", backend=backend, location="/nowhere", **fields)


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(UnknownName, match=r"unknown backend 'transformer'. Did you mean 'transformers'\? Known: .*vllm"):
        open_backend(_ref("transformer"))


def test_third_parties_register_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_things", dict(backends._things))

    def factory(ref: ModelRef, options: BackendOptions) -> Backend:
        return ScriptedBackend(lambda _request: options.device, version="1", name=ref.name)

    backends.add("mine", factory)
    assert open_backend(_ref("mine"), BackendOptions(device="cpu")).name == "m"


def test_opening_reads_no_file_but_checks_the_parameters() -> None:
    assert open_backend(_ref("transformers")).name == "m"
    with pytest.raises(ModelError, match="generation parameter 'top_p' is 2"):
        open_backend(_ref("transformers", generation={"top_p": 2}))


@pytest.mark.cases(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device 'gpu': expected 'auto', 'cpu', 'mps', 'cuda' or 'cuda:N'"),
        ({"device": "cuda:x"}, "device 'cuda:x': expected"),
        ({"batch_size": 0}, "batch size 0: expected 1 or more, or 'auto'"),
        ({"batch_size": "many"}, "batch size many: expected 1 or more, or 'auto'"),
        ({"threads": 0}, "threads 0: expected 1 or more"),
        ({"attention": "flash"}, "attention 'flash': expected one of auto, sdpa, eager, flash_attention_2"),
        ({"image_backend": "opencv"}, "image backend 'opencv': expected one of pil, torchvision"),
        ({"preprocessing": "quick"}, "--vlm-preprocessing 'quick': expected one of fast, library"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BackendOptions(**options)


def test_a_failed_prediction_has_no_answer() -> None:
    prediction = failed_prediction("why", "sample")
    assert (prediction.text, prediction.finish_reason, prediction.error, prediction.method) == ("", "error", "why", "sample")


def _modules_after(program: str) -> set[str]:
    listing = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return set(listing.stdout.split())


def test_importing_loads_no_model_library() -> None:
    assert not _modules_after("import pytest_vlmrobust.backends") & {"torch", "transformers", "numpy", "PIL", "huggingface_hub"}


def test_a_fingerprint_loads_no_model_library(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "preprocessor_config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    program = (
        "from pytest_vlmrobust.backends import open_backend, resolve\n"
        f"assert open_backend(resolve({str(tmp_path)!r})).fingerprint()['weights']"
    )
    assert not _modules_after(program) & {"torch", "transformers", "PIL"}


def test_what_is_no_backend_is_refused_where_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backends), "get", lambda _self, _name: lambda _ref, _options: None)
    with pytest.raises(ModelError, match="the backend 'none at all' opened a NoneType, which has no method 'fingerprint'"):
        open_backend(ModelRef("m", "none at all", "nothing"))


def test_a_misspelt_method_of_a_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Misspelt:
        def fingerprnt(self) -> None:
            """Is what the author meant."""

    monkeypatch.setattr(type(backends), "get", lambda _self, _name: lambda _ref, _options: Misspelt())
    with pytest.raises(ModelError, match=r"has no method 'fingerprint'. Did you mean 'fingerprnt'\? Fix what it registers"):
        open_backend(ModelRef("m", "mine", "nothing"))


@pytest.mark.parametrize(("name", "meant"), [("script:model.yaml", "scripted:"), ("opnai:http://host/v1#m", "openai:")])
def test_a_misspelt_scheme_is_named(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{meant}'"):
        resolve(name)
