from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_vlmrobust.backends import model_id, model_ids, resolve
from pytest_vlmrobust.backends.resolve import BOX_CONVENTIONS, PUBLISHED, builtin_model, names
from pytest_vlmrobust.core.boxes import CONVENTIONS
from pytest_vlmrobust.core.errors import ModelError, UnknownName


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


@pytest.mark.parametrize("name", names())
def test_every_built_in_name_is_its_own_test_id(name: str) -> None:
    ref = builtin_model(name)
    assert ref is not None
    assert ref.name == name == model_id(name)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)


def test_published_models_are_hub_ids_with_size_and_family() -> None:
    for published in PUBLISHED.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", published.hub_id)
        assert published.billions > 0
        assert published.family


def test_boxes_are_read_as_the_family_writes_them() -> None:
    conventions = {PUBLISHED[name].family: resolve(name).box_convention for name in PUBLISHED}
    assert conventions["qwen2-vl"] == conventions["qwen3-vl"] == conventions["internvl3.5"] == "thousandths"
    assert conventions["qwen2.5-vl"] == "resized_pixels"
    assert conventions["gemma-3"] == ""
    assert set(conventions.values()) <= {"", *CONVENTIONS}
    assert set(BOX_CONVENTIONS) <= set(conventions)


def test_thinking_models_are_asked_in_thinking_mode() -> None:
    assert {name for name in PUBLISHED if resolve(name).prompt_mode == "thinking"} == {n for n in PUBLISHED if "thinking" in n}


def test_a_scripted_file(here: Path) -> None:
    (here / "answers.yaml").write_text("default: A")
    ref = resolve("scripted:answers.yaml")
    assert (ref.name, ref.backend, ref.location) == ("answers", "scripted", str(here / "answers.yaml"))


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
        ("openai:localhost#m", "'localhost' is no base URL. Expected BASE_URL#MODEL or BASE_URL#MODEL@REVISION, such as"),
        ("openai:http://localhost:8000/v1", "expected BASE_URL#MODEL or BASE_URL#MODEL@REVISION, such as"),
        ("openai:http://localhost:8000/v1#", "expected BASE_URL#MODEL"),
        ("openai:http://localhost:8000/v1#m@", "expected BASE_URL#MODEL"),
        ("openai:http://localhost:8000/v1,http://#m", "'http:' is no base URL"),
        ("openai:http://localhost:8000/v1?key=1#m", "'http://localhost:8000/v1?key=1' is no base URL"),
        ("scripted:nowhere.yaml", "there is no file 'nowhere.yaml'"),
        ("./nowhere", "there is no directory 'nowhere'"),
        ("/nowhere/at/all", "there is no directory '/nowhere/at/all'"),
        ("a/b/c", "there is no directory 'a/b/c'"),
    ],
)
def test_what_cannot_be_used_says_why(here: Path, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"^--vlm {re.escape(repr(name))}: {re.escape(message)}"):
        resolve(name)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(
        ModelError, match=r"^--vlm 'openai:\.\.\.': a base URL has a user or a password.*keys come from the env"
    ) as caught:
        resolve("openai:https://me:pa55word@host/v1#m")
    assert "pa55word" not in str(caught.value)


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


@pytest.mark.parametrize(
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
