from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pytest_vlmrobust.backends import model_id, resolve
from pytest_vlmrobust.backends.generation import Generation, generation_for
from pytest_vlmrobust.backends.models_file import _LISTED, FIELDS, PUBLISHED, Published, described, models_schema, read_models
from pytest_vlmrobust.core.boxes import CONVENTIONS
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef

WHOLE = """\
models:
  ours-v3:
    path: checkpoints/v3
    dtype: bfloat16
    prompt_mode: cot
    generation: {max_new_tokens: 512}
    min_pixels: 3136
    max_pixels: 1003520
    box_convention: thousandths
    family: ours
    parameters_billion: 2.2
    policy: strict
    adapter: lora/v3
    quantization: 8bit
    device_map: balanced
    max_memory: {"cuda:0": 20GiB, cpu: 1.5GB}
  hosted:
    id: Qwen/Qwen2-VL-2B-Instruct
    revision: "895c3a49bc3fa70a340399125c650a463535e71c"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(text)
    return path


def test_reads_every_field_and_keeps_the_order(tmp_path: Path) -> None:
    models = read_models(_write(tmp_path, WHOLE))
    assert list(models) == ["ours-v3", "hosted"]
    assert models["ours-v3"] == ModelRef(
        name="ours-v3",
        backend="transformers",
        location=str(tmp_path / "checkpoints" / "v3"),
        dtype="bfloat16",
        prompt_mode="cot",
        generation={"max_new_tokens": 512},
        min_pixels=3136,
        max_pixels=1003520,
        box_convention="thousandths",
        family="ours",
        parameters_billion=2.2,
        policy="strict",
        adapter=str(tmp_path / "lora" / "v3"),
        quantization="8bit",
        device_map="balanced",
        max_memory={"cuda:0": "20GiB", "cpu": "1.5GB"},
    )
    assert models["hosted"].location == "Qwen/Qwen2-VL-2B-Instruct"
    assert models["hosted"].revision.startswith("895c")


def test_generation_can_be_named(tmp_path: Path) -> None:
    entry = read_models(_write(tmp_path, "models: {m: {path: x, prompt_mode: thinking, generation: observatory}}"))["m"]
    assert generation_for(entry) == Generation(max_new_tokens=8192, temperature=0.2, top_p=0.95, top_k=32)
    with pytest.raises(ModelError, match=r"is the text 'observatry'\. Expected a mapping such as .*, or observatory"):
        read_models(_write(tmp_path, "models: {m: {path: x, generation: observatry}}"))


def test_a_file_of_scripted_answers_can_be_entered(tmp_path: Path) -> None:
    entry = read_models(_write(tmp_path, "models: {rehearsal: {backend: scripted, path: answers.yaml}}"))["rehearsal"]
    assert (entry.backend, entry.location) == ("scripted", str(tmp_path / "answers.yaml"))


SERVED = """\
models:
  served:
    backend: openai
    url: [http://a:8000/v1/, http://b:8000/v1]
    model: org/model
    revision: "2024-06-01 vllm-0.33"
    key_variable: OUR_KEY
    tokenizer: Qwen/Qwen2-VL-2B-Instruct
    time_limit: 30
    answer: text
    system_prompt: Be brief.
    template: "Look. {question}"
    headers: {api-key: {variable: OUR_KEY}}
    query: {api-version: "2026-02-01"}
    extra_body: {provider: {order: [a, b], weights: [1, 0.5, null]}, chat_template_kwargs: {enable_thinking: false}}
    reasoning_effort: none
    token_limit_parameter: max_completion_tokens
    generation: {temperature: none}
"""


def test_a_served_model_can_be_entered(tmp_path: Path) -> None:
    assert read_models(_write(tmp_path, SERVED))["served"] == ModelRef(
        name="served",
        backend="openai",
        location="http://a:8000/v1,http://b:8000/v1#org/model",
        revision="2024-06-01 vllm-0.33",
        key_variable="OUR_KEY",
        tokenizer="Qwen/Qwen2-VL-2B-Instruct",
        time_limit=30.0,
        answer="text",
        system_prompt="Be brief.",
        template="Look. {question}",
        headers={"api-key": "OUR_KEY"},
        query={"api-version": "2026-02-01"},
        extra_body={
            "provider": {"order": ["a", "b"], "weights": [1, 0.5, None]},
            "chat_template_kwargs": {"enable_thinking": False},
        },
        reasoning_effort="none",
        token_limit_parameter="max_completion_tokens",  # noqa: S106 - the name of a parameter
        generation={"temperature": "none"},
    )


def test_a_third_party_backend_needs_no_files(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("models:\n  m: {backend: ours, revision: '2'}\n  n: {backend: ours, path: x}\n")
    models = read_models(tmp_path / "models.yaml")
    assert [(ref.backend, ref.location) for ref in models.values()] == [("ours", ""), ("ours", str(tmp_path / "x"))]


def test_a_key_in_the_place_of_its_variable_is_not_repeated(tmp_path: Path) -> None:
    path = _write(tmp_path, SERVED.replace("OUR_KEY", "sk-abc-123"))
    with pytest.raises(ModelError, match=r":7: models.served.key_variable is not the name of an environment variable") as caught:
        read_models(path)
    assert "sk-abc" not in str(caught.value)


def test_a_token_limit_parameter_that_is_found_out_is_the_same_as_none(tmp_path: Path) -> None:
    entry = read_models(_write(tmp_path, f"{OF_A_SERVER}    token_limit_parameter: auto\n"))["m"]
    assert entry == read_models(_write(tmp_path, OF_A_SERVER))["m"]
    assert entry.deployment == {}


def test_names_of_tokens_of_texts_are_no_names_of_secrets(tmp_path: Path) -> None:
    names = ("max_num_batched_tokens", "eos_token", "image_token", "speculative_token_map", "stop_token_ids")
    engine = ", ".join(f"{name}: a" for name in names)
    entry = read_models(_write(tmp_path, f"models: {{m: {{backend: own, path: x, engine: {{{engine}}}}}}}"))["m"]
    assert tuple(entry.engine) == names


def test_a_system_prompt_can_stand_in_a_file_and_is_kept_to_the_letter(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes("Be brief.\r\nAnd kind ä.\n".encode())
    entry = read_models(_write(tmp_path, "models: {m: {path: x, system_prompt: {file: prompt.txt}}}"))["m"]
    assert entry.system_prompt == "Be brief.\r\nAnd kind ä.\n"
    (tmp_path / "prompt.txt").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r":1: models.m.system_prompt.file cannot be read: .*Expected a text file in UTF-8"):
        read_models(tmp_path / "models.yaml")
    (tmp_path / "prompt.txt").write_text("\n")
    with pytest.raises(ModelError, match=r":1: models.m.system_prompt.file names a file without text"):
        read_models(tmp_path / "models.yaml")


def test_a_value_in_the_place_of_a_header_s_variable_is_not_repeated(tmp_path: Path) -> None:
    for value in ("sk-abc-123", "{variable: sk-abc-123}"):
        path = _write(tmp_path, f"{OF_A_SERVER}    headers: {{api-key: {value}}}\n")
        with pytest.raises(ModelError, match=r":6: models.m.headers.api-key.* never written into files") as caught:
            read_models(path)
        assert "sk-abc" not in str(caught.value)


OF_A_SERVER = "models:\n  m:\n    backend: openai\n    url: http://a/v1\n    model: m\n"


@pytest.mark.cases(
    ("line", "message"),
    [
        ("headers: {host: {variable: A}}", "models.m.headers.host is not a header that can be set here"),
        ("headers: {'a b': {variable: A}}", "models.m.headers.a b is not a header that can be set here"),
        ("headers: {a: {variable: A}, A: {variable: A}}", "models.m.headers.A is written twice"),
        ("headers: {a: {value: A}}", "unknown key 'value' in models.m.headers.a"),
        ("headers: [a]", "models.m.headers is a list. Expected a mapping such as"),
        ("query: {api-version: 2026-02-01}", "models.m.query.api-version is '2026-02-01'. Expected text: put it in quotes"),
        ("query: {key: abc}", "models.m.query.key has the name of a secret"),
        (
            "extra_body: {max_tokens: 3}",
            "models.m.extra_body.max_tokens is set by the gate itself. What decides .*max_new_tokens",
        ),
        ("extra_body: {temperature: 3}", "models.m.extra_body.temperature is set by the gate itself. .*'generation'"),
        ("extra_body: {messages: []}", "models.m.extra_body.messages is set by the gate itself"),
        ("extra_body: {stream: true}", "models.m.extra_body.stream is set by the gate itself"),
        ("extra_body: {a: {api_key: x}}", "models.m.extra_body.a.api_key has the name of a secret"),
        ("extra_body: {token: x}", "models.m.extra_body.token has the name of a secret, .* Send it as a header"),
        ("extra_body: {a: [2026-02-01]}", r"models.m.extra_body.a\[1\] is '2026-02-01'. Expected a JSON value"),
        ("extra_body: {a: .nan}", "models.m.extra_body.a is '.nan'. Expected a JSON value"),
        ("reasoning_effort: hihg", "models.m.reasoning_effort is .* Did you mean 'high'"),
        ("token_limit_parameter: max_token", "models.m.token_limit_parameter is .* Did you mean 'max_tokens'"),
        ("template: Look.", "models.m.template has 0 times {question}. Expected it exactly once"),
        ("template: '{question} {question}'", "models.m.template has 2 times {question}"),
        ("template: '\ufffc{question}'", "models.m.template has the character U.FFFC"),
        ("system_prompt: ''", "models.m.system_prompt is the text ''. Expected text, or {file: PATH}"),
        ("system_prompt: {fil: x}", "unknown key 'fil' in models.m.system_prompt. Did you mean 'file'"),
        ("system_prompt: {file: none.txt}", "models.m.system_prompt.file cannot be read: .*No such file"),
        ("generation: {temperature: non}", "model 'm': generation parameter 'temperature' is 'non'; expected .* or none with"),
    ],
)
def test_mistakes_in_how_a_model_is_asked_are_reported_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = _write(tmp_path, f"{OF_A_SERVER}    {line}\n")
    with pytest.raises(ModelError, match=f"^{path}:6: {message}"):
        read_models(path)


@pytest.mark.cases(
    ("text", "message"),
    [
        *(
            (f"models:\n  m:\n    path: x\n    {name}: {value}\n", f":4: models.m.{name} is about servers")
            for name, value in {
                "headers": "{a: {variable: A}}",
                "query": "{a: b}",
                "extra_body": "{a: b}",
                "reasoning_effort": "low",
                "token_limit_parameter": "auto",
            }.items()
        ),
        ("models:\n  m:\n    path: x\n    generation: {temperature: none}\n", ":4: model 'm': temperature: none leaves"),
        (
            "models:\n  m:\n    path: x\n    backend: scripted\n    system_prompt: x\n",
            ":5: models.m.system_prompt does not go with backend: scripted: no model reads it",
        ),
        ("models:\n  m:\n    backend: openai\n    url: http://a/v1\n", ":2: models.m lacks 'url' or 'model'"),
        (
            "models:\n  m:\n    backend: openai\n    url: a/v1\n    model: m\n",
            ":4: models.m.url is refused: 'a/v1' is not a base URL",
        ),
        (
            "models:\n  m:\n    backend: openai\n    path: x\n    url: http://a/v1\n    model: m\n",
            ":4: models.m.path does not go with backend: openai",
        ),
        ("models:\n  m:\n    path: x\n    url: http://a/v1\n", ":4: models.m.url is about servers"),
        ("models:\n  m:\n    path: x\n    tokenizer: y\n", ":4: models.m.tokenizer is about servers"),
        ("models:\n  m:\n    id: a/b\n    remote_code: true\n", ":4: models.m.remote_code needs a 'revision' that is a commit"),
        (
            "models:\n  m:\n    id: a/b\n    revision: main\n    remote_code: true\n",
            ":5: models.m.remote_code needs a 'revision' that is a commit, 40 hexadecimal digits",
        ),
        (
            "models:\n  m:\n    backend: scripted\n    path: x\n    remote_code: true\n",
            ":5: models.m.remote_code is about checkpoints that load here: it goes with backend: transformers alone",
        ),
        (
            "models:\n  m:\n    backend: openai\n    url: http://a/v1\n    model: m\n    adapter: x\n",
            ":6: models.m.adapter does not go with backend: openai: an adapter is applied where weights are loaded",
        ),
        ("models:\n  m:\n    path: x\n    engine: {a: 1}\n", ":4: models.m.engine does not go with backend: transformers"),
        ("models:\n  m: {backend: own, path: x, engine: 2}\n", ":2: models.m.engine is .2.. Expected a mapping such as"),
        ("models:\n  m: {backend: own, path: x, engine: {api_key: k}}\n", ":2: models.m.engine.api_key has the name of a secret"),
        *(
            (f"models:\n  m: {{backend: own, path: x, engine: {{{name}: k}}}}\n", f":2: models.m.engine.{name} has .* HF_TOKEN")
            for name in ("hf_token", "hf-token", "token", "my_token")
        ),
        ("models:\n  m:\n    path: x\n    adaptor: y\n", r":4: unknown key 'adaptor' in models.m. Did you mean 'adapter'\?"),
        ("models:\n  m:\n    path: x\n    adapter: 3\n", ":4: models.m.adapter is '3'. Expected the directory of a LoRA adapter"),
        (
            "models:\n  m:\n    path: x\n    quantization: 4bits\n",
            r":4: models.m.quantization is the text '4bits'. Expected one of 4bit, 8bit. Did you mean '4bit'\?",
        ),
        (
            "models:\n  m:\n    path: x\n    device_map: balance\n",
            r":4: models.m.device_map is the text 'balance'. Expected one of auto, .* cuda:N. Did you mean 'balanced'\?",
        ),
        (
            "models:\n  m:\n    path: x\n    max_memory: {cpu: 1GiB}\n",
            ":4: models.m.max_memory needs a device_map that spreads the weights: auto, balanced, sequential",
        ),
        (
            "models:\n  m:\n    path: x\n    device_map: auto\n    max_memory:\n      cuda0: 1GiB\n",
            r":6: unknown key 'cuda0' in models.m.max_memory. Did you mean 'cuda:0'\? Known: cpu, cuda:0",
        ),
        (
            "models:\n  m:\n    path: x\n    device_map: auto\n    max_memory:\n      cpu: 20 gigs\n",
            ":6: models.m.max_memory.cpu is the text '20 gigs'. Expected an amount such as 20GiB: a number, then",
        ),
        ("models:\n  m:\n    path: x\n    prompt_price: 2\n", ":2: models.m has 1 of prompt_price, completion_price, currency."),
        ("models:\n  m:\n    path: x\n    prompt_price: -2\n", ":4: models.m.prompt_price is '-2'. Expected the price of"),
        ("models:\n  m:\n    path: x\n    time_limit: 0\n", ":4: models.m.time_limit is '0'. Expected a number of seconds"),
        ("models:\n  m:\n    path: x\n    answer: letter\n", r":4: models.m.answer is .* Did you mean 'letters'\?"),
        ("models:\n  m:\n    path: x\n    ulr: x\n", r":4: unknown key 'ulr' in models.m. Did you mean 'url'\?"),
        ("models:\n  m:\n    path: x\n    dtyp: auto\n", r":4: unknown key 'dtyp' in models.m. Did you mean 'dtype'\? Known"),
        (
            "models:\n  m:\n    path: x\n    dtype: bf16\n",
            r":4: models.m.dtype is the text 'bf16'. Expected one of auto, float32, bfloat16, float16. Did you mean 'bfloat16'",
        ),
        ("models:\n  m:\n    path: x\n    max_pixels: -1\n", ":4: models.m.max_pixels is '-1'. Expected a whole number"),
        ("models:\n  m:\n    path: x\n    max_pixels: 1.5\n", ":4: models.m.max_pixels is '1.5'. Expected a whole number"),
        ("models:\n  m:\n    path: x\n    max_pixels: true\n", ":4: models.m.max_pixels is 'true'. Expected a whole number"),
        ("models:\n  m:\n    path: x\n    parameters_billion: 0\n", ":4: models.m.parameters_billion is '0'. Expected a number"),
        (
            "models:\n  m:\n    path: x\n    box_convention: thousandth\n",
            r":4: models.m.box_convention is the text 'thousandth'. Expected one of pixels, .* Did you mean 'thousandths'\?",
        ),
        ("models:\n  m:\n    path: ''\n", ":3: models.m.path is the text ''. Expected a checkpoint directory"),
        (
            "models:\n  m:\n    id: a/b\n    revision: 12\n",
            ":4: models.m.revision is '12'. Expected a branch, tag or commit of the hub, or what a server runs, in quotes: '12'",
        ),
        (
            "models:\n  m:\n    path: x\n    min_pixels: 9\n    max_pixels: 4\n",
            ":5: models.m.max_pixels is 4, which is below min_pixels, 9",
        ),
        ("models:\n  m:\n    path: x\n    id: a/b\n", ":2: models.m has both of 'path' and 'id'; give exactly one"),
        ("models:\n  m:\n    dtype: auto\n", ":2: models.m has neither of 'path' and 'id'; give exactly one"),
        ("models:\n  my/m:\n    path: x\n", ":2: models.my/m is not a model name: it may have letters"),
        ("models:\n  m:\n    path: x\n    path: y\n", ":4: models.m.path is written twice, first in line 3"),
        ("models:\n  m: {path: x}\n  m: {path: y}\n", ":3: models.m is written twice, first in line 2"),
        ("models:\n  m: x\n", ":2: models.m is the text 'x'. Expected a mapping"),
        ("models:\n  7: {path: x}\n", ":2: the key '7' in models is not text. Put numbers, days, yes and no in quotes"),
        ("- m\n", ":1: the file is a list. Expected a mapping with the keys models"),
        ("model:\n  m: {path: x}\n", r":1: unknown key 'model' in the file. Did you mean 'models'\?"),
        ("models:\n  m:\n    path: x\n    generation:\n      top_k: -3\n", ":4: model 'm': generation parameter 'top_k' is -3"),
        ("models:\n  m:\n    path: x\n    generation: 512\n", ":4: models.m.generation is '512'. Expected a mapping such as"),
        ("models:\n  m:\n    path: ~nobody-has-this-name/x\n", ":3: models.m.path is .*Expected a path that this machine"),
        ("models:\n  m: {path: [\n", ":3: not YAML"),
        ("", ": the file is empty. Expected 'models:' with one entry per model"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(ModelError, match=f"^{path}{message}"):
        read_models(path)


def test_all_mistakes_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(
        "models:\n  m: {pth: x, dtyp: auto, dtype: float8}\n"
        "  n:\n    path: x\n    dtype: float23\n    policy: 3\n  o: {dtype: auto}\n"
        "  p: {backend: scripted, path: x, adapter: y, url: 'http://h/v1'}\n"
    )
    with pytest.raises(ModelError) as error:
        read_models(file)
    lines = str(error.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line[:30] for line in lines] == [
        "models.yaml:2: unknown key 'pt",
        "models.yaml:2: unknown key 'dt",
        "models.yaml:2: models.m.dtype ",
        "models.yaml:5: models.n.dtype ",
        "models.yaml:6: models.n.policy",
        "models.yaml:7: models.o has ne",
        "models.yaml:8: models.p.adapte",
        "models.yaml:8: models.p.url is",
    ]


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere.yaml: cannot read the models file \(--vlm-models\): No such file"):
        read_models(tmp_path / "nowhere.yaml")


def test_nothing_in_the_file_is_executed(tmp_path: Path) -> None:
    path = _write(tmp_path, "models:\n  m:\n    path: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ModelError, match=r":3: models.m.path is a list. Expected a single value"):
        read_models(path)


# The JSON Schema, by which editors complete and check a models file.


def accepted_by_schema(text: str) -> bool:
    jsonschema = pytest.importorskip("jsonschema")
    schema = models_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return bool(jsonschema.Draft7Validator(schema).is_valid(yaml.safe_load(text)))


def test_the_schema_describes_every_key() -> None:
    assert list(models_schema()["properties"]["models"]["additionalProperties"]["properties"]) == list(FIELDS)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        SERVED,
        "models: {}",
        "models: {m: {path: x, prompt_mode: thinking, generation: observatory}}",
        "models: {m: {path: x, generation: {top_k: 3}, parameters_billion: 2, device_map: 'cuda:1', remote_code: false}}",
        "models: {m: {serve: vllm, id: a/b, engine: {max_model_len: 9}, prompt_price: 0, completion_price: 2.5, currency: EUR}}",
    ],
)
def test_what_the_reader_accepts_the_schema_accepts(tmp_path: Path, text: str) -> None:
    read_models(_write(tmp_path, text))
    assert accepted_by_schema(text)


@pytest.mark.cases(
    "text",
    [
        "model: {}",
        "models: {my/m: {path: x}}",
        "models: {m: x}",
        *(
            f"models: {{m: {{path: x, {line}}}}}"
            for line in (
                "pth: y",
                "backend: ''",
                "revision: 12",
                "remote_code: 1",
                "dtype: bf16",
                "adapter: 3",
                "quantization: 4bits",
                "device_map: []",
                "device_map: auto, max_memory: {cuda0: 1GiB}",
                "device_map: auto, max_memory: {cpu: 20 gigs}",
                "prompt_mode: slow",
                "generation: 512",
                "generation: observatry",
                "min_pixels: 0",
                "max_pixels: 1.5",
                "parameters_billion: 0",
                "answer: letter",
                "prompt_price: -1",
                "currency: 1",
            )
        ),
        *(
            f"models: {{m: {{backend: openai, url: http://a/v1, model: m, {line}}}}}"
            for line in (
                "key_variable: sk-abc",
                "time_limit: 0",
                "template: Look.",
                "system_prompt: {fil: x}",
                "headers: {a: b}",
                "headers: {a: {variable: b}}",
                "query: {a: 1}",
                "extra_body: 1",
                "reasoning_effort: lo",
                "token_limit_parameter: max",
            )
        ),
        "models: {m: {backend: openai, url: [], model: m}}",
    ],
)
def test_what_the_schema_refuses_the_reader_refuses(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelError):
        read_models(_write(tmp_path, text))
    assert not accepted_by_schema(text)


# Published models: the built-in names of the papers, and what each needs.


HERE = {name for name, about in PUBLISHED.items() if not about.is_served}
"""Those that run in the process of a gate."""


def test_they_are_hub_ids_with_size_and_family() -> None:
    for name, published in PUBLISHED.items():
        assert name == model_id(name)
        assert published.family
        if published.hub_id:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", published.hub_id)
            assert published.billions > 0
    assert len({published.hub_id for published in PUBLISHED.values() if published.hub_id}) == sum(
        bool(published.hub_id) for published in PUBLISHED.values()
    )


@pytest.mark.cases(
    "family",
    [
        *("qwen2-vl-72b", "qwen2.5-vl-72b", "qwen3-vl-30b-a3b", "qwen3-vl-30b-a3b-thinking", "internvl2.5-26b", "internvl3-78b"),
        *(
            "internvl3.5-38b",
            "molmo-72b",
            "molmo2-8b",
            "gemma-3-27b",
            "llava-onevision-72b",
            "phi-3.5-vision",
            "phi-4-multimodal",
        ),
        *(
            "phi-4-multimodal",
            "pixtral-12b",
            "smolvlm2-2.2b",
            "minicpm-v-2.6",
            "deepseek-vl2",
            "kimi-vl-a3b",
            "gpt-4o",
            "gemini-1.5-pro",
        ),
    ],
)
def test_every_model_family_of_the_papers_has_a_name(family: str) -> None:
    assert family in PUBLISHED


def test_weights_are_parameters_times_bytes() -> None:
    assert PUBLISHED["qwen2-vl-7b"].weights == {"bfloat16": 14.0, "float32": 28.0}
    assert PUBLISHED["qwen3-vl-30b-a3b"].weights["bfloat16"] == 60.0, "all experts are loaded"
    assert PUBLISHED["gpt-4o"].weights == {}
    assert described("x", Published("a/b", "gemma-3", 4)) == ("x", "a/b", "8 / 16", "", "direct", "not run here")


def test_what_brings_code_or_is_not_published_has_to_be_served() -> None:
    with pytest.raises(ModelError, match=r"runs by Python code in its checkpoint.* --trust-remote-code.* --vlm=openai:BASE_URL#"):
        resolve("molmo-7b-d")
    with pytest.raises(ModelError, match=r"'gpt-4o': its weights are not published\..* --vlm=openai:BASE_URL#gpt-4o@REVISION"):
        resolve("gpt-4o")
    assert {about.extra for about in PUBLISHED.values()} == {"", "openai", "torchvision"}


def test_models_that_run_here_are_known_to_transformers_and_others_are_not() -> None:
    from transformers.models.auto import modeling_auto

    known = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    types = {
        "qwen2-vl": "qwen2_vl",
        "qwen2.5-vl": "qwen2_5_vl",
        "qwen3-vl": "qwen3_vl",
        "internvl3": "internvl",
        "internvl3.5": "internvl",
        "gemma-3": "gemma3",
        "llava-onevision": "llava_onevision",
        "idefics3": "idefics3",
        "smolvlm": "idefics3",
        "smolvlm2": "smolvlm",
        "pixtral": "llava",
        "molmo2": "molmo2",
    }
    assert {types[PUBLISHED[name].family] for name in HERE} <= set(known)
    assert "qwen3_vl_moe" in known
    assert not {"internvl_chat", "molmo", "phi3_v", "phi4mm", "minicpmv", "deepseek_vl_v2", "kimi_vl"} & set(known)


def test_boxes_are_read_as_the_family_writes_them() -> None:
    conventions = {PUBLISHED[name].family: resolve(name).box_convention for name in HERE}
    assert conventions["qwen2-vl"] == conventions["qwen3-vl"] == conventions["internvl3.5"] == "thousandths"
    assert conventions["qwen2.5-vl"] == "resized_pixels"
    assert conventions["gemma-3"] == ""
    assert set(conventions.values()) <= {"", *CONVENTIONS}
    assert {family for family, facts in _LISTED["families"].items() if "boxes" in facts} <= set(conventions)
    assert {about.family for about in PUBLISHED.values()} >= set(_LISTED["families"])


def test_thinking_models_are_asked_in_thinking_mode() -> None:
    assert {name for name in HERE if resolve(name).prompt_mode == "thinking"} == {name for name in HERE if "thinking" in name}
