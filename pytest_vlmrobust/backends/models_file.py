"""Models by name: the user's models file, with line numbers in every error, and the published models.

models:
  ours-v3:
    path: checkpoints/ours-v3        # relative to this file; or  id: org/name  for the hub
    dtype: bfloat16
    generation: {max_new_tokens: 512}
  ours-served:
    backend: openai
    url: http://localhost:8000/v1    # or a list: replicas
    model: ours-v3                   # as the server calls it
    revision: "2024-06-01 vllm-0.33"
    headers: {api-key: {variable: OUR_KEY}}
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pytest_vlmrobust.core.boxes import CONVENTIONS
from pytest_vlmrobust.core.errors import ModelError, did_you_mean
from pytest_vlmrobust.core.prediction import ANSWERS, PROMPT_MODES, ModelRef
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.files.document import Entry, read_all, read_document, read_keys
from pytest_vlmrobust.files.values import TEXT, TRUTH, Value, any_keys, mapping, number, one_of, one_or_more, text, whole_number

from .contract import DEVICE
from .devices import SPREADS
from .generation import PRESETS, generation_for
from .served import Served, read_urls

DTYPES = ("auto", "float32", "bfloat16", "float16")
PROGRAMS = {"vllm": "vllm", "sglang": "python", "transformers": "transformers"}
"""The engines whose servers a run can start, and the program of each on PATH."""
_SET_BY_SERVE = ("host", "port", "served_model_name", "model", "model_path", "revision", "dtype")
_ARGUMENT = re.compile(r"[A-Za-z][\w-]*\Z")
QUANTIZATIONS = ("4bit", "8bit")

_SAFE_NAME = "[A-Za-z0-9._-]+"
_VARIABLE = "[A-Z][A-Z0-9_]*"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HERE, _SERVED, _SERVE, _SCRIPTED = "transformers", "openai", "serve", "scripted"
_OF_FILES = (_HERE, _SERVE, _SCRIPTED, "vllm")
"""The backends that need 'path' or 'id'."""
_NOT_WITH = {
    "adapter": ((_SERVED, _SCRIPTED), "an adapter is applied where weights are loaded"),
    **dict.fromkeys(("path", "id"), ((_SERVED,), "it has 'url' and 'model'")),
    "system_prompt": ((_SCRIPTED,), "no model reads it"),
    "engine": ((_HERE, _SERVED, _SCRIPTED), "it has keys of its own, and no engine that takes more"),
}
_LOADED_HERE = ("remote_code", "quantization", "device_map", "max_memory")
_OF_REQUESTS = ("headers", "query", "extra_body", "reasoning_effort", "token_limit_parameter")
_OF_SERVERS = ("url", "model", "key_variable", "time_limit", "tokenizer", *_OF_REQUESTS)
_OF_OTHERS_SERVERS = ("url", "model", "key_variable", "headers", "query")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_LIMITS = ("max_tokens", "max_completion_tokens", "auto")
_QUESTION = "{question}"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_OF_TRANSPORT = ("accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
_SECRET = re.compile(
    r"(?i)api[-_]?key|subscription[-_]?key|(access|auth)[-_]?token|authorization|password|secret|(key|token|sig)\Z"
)
"""Names of values that are secrets."""
_SECRET_IN_BODY = re.compile(
    r"(?i)api[-_]?key|subscription[-_]?key|(access|auth|hf)[-_]?token|authorization|password|secret"
    r"|(\A|(?<!bos|eos|pad|unk|sep|cls)(?<!image|video)[-_])token\Z"  # these are tokens of text, not secrets
)
_AS_HEADER = "Send it as a header, whose value comes from the environment: headers: {NAME: {variable: VARIABLE}}"
_IN_ENVIRONMENT = "Engines read secrets from the environment, such as HF_TOKEN: set it there"
_SET_HERE: Mapping[str, str] = {
    "model": "'model'",
    "messages": "the questions, and 'system_prompt'",
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "'generation: {max_new_tokens: ...}', and 'token_limit_parameter'"),
    **dict.fromkeys(("temperature", "top_p", "top_k", "repetition_penalty", "seed"), "'generation'"),
    "reasoning_effort": "'reasoning_effort' of the entry",
    **dict.fromkeys(("logprobs", "top_logprobs", "response_format", "logit_bias"), "'answer'"),
    **dict.fromkeys(("stream", "n"), "nothing: one whole answer is read"),
}
"""Keys of a request body that the gate sets itself, and what decides each."""
_GENERATION = f"a mapping such as {{max_new_tokens: 512}}, or {', '.join(PRESETS)}"
_DEVICES = ("cpu", *(f"cuda:{number}" for number in range(16)))
_MEMORY = r"\d+(\.\d+)?(GiB|MiB|GB|MB)"
_PRICES = ("prompt_price", "completion_price", "currency")


def read_url_entry(entry: Entry) -> tuple[str, ...]:
    """Returns one base URL, or those of a list."""
    try:
        return read_urls(entry.texts())
    except ValueError as error:
        entry.fail(f"is refused: {error}")


def read_variable(entry: Entry) -> str:
    """Returns the name of an environment variable."""
    name = entry.text("the name of an environment variable")
    if not re.fullmatch(_VARIABLE, name):
        # the value may be the key itself, so it is not repeated
        entry.fail("is not the name of an environment variable. Keys are never written into files: set one, and name it here")
    return name


def _headers(entry: Entry) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name, value in entry.table("a mapping such as {api-key: {variable: AZURE_KEY}}").items():
        if not _HEADER.match(name) or name.lower() in _OF_TRANSPORT:
            value.fail("is not a header that can be set here. Expected the name of a header such as api-key")
        if name.lower() in map(str.lower, variables):
            value.fail("is written twice, for capitals do not matter in names of headers. Keep one of them")
        if not value.is_mapping:  # the value may be the secret itself, so it is not repeated
            value.fail(
                "is not read from here. Values of headers are never written into files: write {variable: NAME}, and set it"
            )
        variables[name] = read_variable(value.mapping(("variable",), required=("variable",))["variable"])
    return variables


def _query(entry: Entry) -> dict[str, str]:
    texts = {}
    for name, value in entry.table("a mapping such as {api-version: '2026-02-01'}").items():
        _refuse_secret(name, value, _SECRET, _AS_HEADER)
        texts[name] = value.text()
    return texts


def _extra_body(entry: Entry) -> dict[str, Any]:
    given = entry.table("a mapping such as {chat_template_kwargs: {enable_thinking: false}}")
    for name, value in given.items():
        if name in _SET_HERE:
            value.fail(f"is set by the gate itself. What decides about it: {_SET_HERE[name]}")
    return {name: _json(name, value, _AS_HEADER) for name, value in given.items()}


def _engine(entry: Entry) -> dict[str, Any]:
    options = entry.table("a mapping such as {tensor_parallel_size: 2}")
    return {name: _json(name, value, _IN_ENVIRONMENT) for name, value in options.items()}


def _json(name: str, entry: Entry, advice: str) -> Any:
    """Returns a JSON value; refuses one whose name says that it is a secret."""
    _refuse_secret(name, entry, _SECRET_IN_BODY, advice)
    if entry.is_mapping:
        return {key: _json(key, value, advice) for key, value in entry.table().items()}
    if entry.is_list:
        return [_json("", value, advice) for value in entry.items()]
    value = entry.scalar()
    if not isinstance(value, str | int | float | bool | None) or (isinstance(value, float) and not math.isfinite(value)):
        entry.refuse("a JSON value: put days in quotes; numbers are finite")
    return value


def _refuse_secret(name: str, entry: Entry, pattern: re.Pattern[str], advice: str) -> None:
    if pattern.search(name):
        entry.fail(f"has the name of a secret, and would be written into the manifest. {advice}")


def _system_prompt(entry: Entry) -> str:
    if not entry.is_mapping:
        return entry.text("text, or {file: PATH}")
    file = entry.mapping(("file",), required=("file",))["file"]
    path = file.file_below(Path(entry.file).parent, "a text file")
    try:
        prompt = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        file.fail(f"cannot be read: {error}. Expected a text file in UTF-8, relative to this one")
    if not prompt.strip():
        file.fail("names a file without text. Leave 'system_prompt' out, or fill the file")
    return prompt


_AROUND = f"text with {_QUESTION} in it"


def _template(entry: Entry) -> str:
    template = entry.text(_AROUND)
    if template.count(_QUESTION) != 1:
        entry.fail(f"has {template.count(_QUESTION)} times {_QUESTION}. Expected it exactly once: there the question stands")
    if IMAGE_MARK in template:
        entry.fail("has the character U+FFFC, which stands for an image in questions. Remove it")
    return template


_SPREAD = f"one of {', '.join(SPREADS)}, or a device: cpu, mps, cuda or cuda:N"


def _device_map(entry: Entry) -> str:
    device = entry.text(_SPREAD)
    if device not in SPREADS and not DEVICE.match(device):
        entry.refuse(f"{_SPREAD}.{did_you_mean(device, (*SPREADS, *_DEVICES))}")
    return device


def _memory(entry: Entry) -> str:
    """Returns the memory limit of a device, as written."""
    amount = entry.text("an amount such as 20GiB")
    if not re.fullmatch(_MEMORY, amount):
        entry.refuse("an amount such as 20GiB: a number, then GiB, MiB, GB or MB")
    return amount


_TOKENIZER = "a checkpoint directory, or a hub id 'owner/name'"


def _place_of_tokenizer(entry: Entry) -> str:
    """Returns a checkpoint directory, relative to the models file, or else the text as a hub id."""
    path = entry.file_below(Path(entry.file).parent, _TOKENIZER)
    return str(path.resolve()) if path.is_dir() else entry.text()


def _generation(entry: Entry) -> dict[str, Any]:
    """Returns generation parameters, written one by one or as the name of a preset."""
    if not (entry.is_mapping or entry.is_list) and (name := entry.scalar()) in PRESETS:
        return dict(PRESETS[name])
    return {key: value.scalar() for key, value in entry.table(_GENERATION).items()}


_A_VARIABLE = {"type": "string", "pattern": f"^{_VARIABLE}$", "description": "the name of an environment variable"}
_HEADERS = any_keys(mapping({"variable": Value(read_variable, _A_VARIABLE)}, ("variable",)))
_PROMPT = {"anyOf": [TEXT.schema, mapping({"file": text("a text file, relative to this one")}, ("file",))]}
_PATH, _ADAPTER = "a checkpoint directory, or a file of scripted answers", "the directory of a LoRA adapter"
_AMOUNTS = dict.fromkeys(_DEVICES, Value(_memory, {"type": "string", "pattern": f"^{_MEMORY}$"}))
_PIXELS = whole_number("a whole number of pixels above 0", low=1)
_PRICE = number("the price of a million tokens, 0 or more", low=0.0)
FIELDS: Mapping[str, Value] = {
    "backend": text("the name of a backend"),
    "path": Value(lambda entry: entry.file_below(Path(entry.file).parent, _PATH), text(_PATH).schema),
    "id": text("a hub id 'owner/name'"),
    "revision": text("a branch, tag or commit of the hub, or what a server runs"),
    "remote_code": TRUTH,
    "dtype": one_of(DTYPES),
    "adapter": Value(lambda entry: str(entry.file_below(Path(entry.file).parent, _ADAPTER).resolve()), text(_ADAPTER).schema),
    "quantization": one_of(QUANTIZATIONS),
    "device_map": Value(_device_map, text(_SPREAD).schema),
    "max_memory": Value(lambda entry: read_keys(entry.mapping(_DEVICES), _AMOUNTS), mapping(_AMOUNTS)),
    "prompt_mode": one_of(PROMPT_MODES),
    "generation": Value(_generation, {"anyOf": [{"type": "object"}, {"enum": [*PRESETS]}], "description": _GENERATION}),
    **dict.fromkeys(("min_pixels", "max_pixels"), _PIXELS),
    "box_convention": one_of(CONVENTIONS),
    "family": text("a short name that models of one kind share"),
    "parameters_billion": number("a number above 0", above=0.0),
    "policy": text("the name of a thresholds file"),
    "answer": one_of(ANSWERS),
    "url": Value(read_url_entry, one_or_more(text("a base URL such as http://localhost:8000/v1").schema)),
    "model": text("the name that the server gives to the model"),
    "tokenizer": Value(_place_of_tokenizer, text(_TOKENIZER).schema),
    "key_variable": Value(read_variable, _A_VARIABLE),
    "system_prompt": Value(_system_prompt, _PROMPT),
    "template": Value(_template, {"type": "string", "pattern": re.escape(_QUESTION), "description": _AROUND}),
    "headers": Value(_headers, _HEADERS),
    "query": Value(_query, any_keys(TEXT.schema)),
    "extra_body": Value(_extra_body, any_keys()),
    "engine": Value(_engine, any_keys()),
    "serve": one_of(PROGRAMS),
    "reasoning_effort": one_of(_EFFORTS),
    "token_limit_parameter": Value(lambda entry: entry.one_of(_LIMITS).replace("auto", ""), {"enum": list(_LIMITS)}),
    "time_limit": number("a number of seconds above 0", above=0.0),
    **dict.fromkeys(("prompt_price", "completion_price"), _PRICE),
    "currency": text("a currency such as EUR"),
}
"""The keys of an entry of the models file, and the values of each."""
SCHEMA_FILE = "models.schema.json"


def models_schema() -> dict[str, Any]:
    """Returns the JSON Schema of models files, in draft 7; it does not say which keys go together."""
    names = {"pattern": f"^{_SAFE_NAME}$", "description": "names become part of test ids"}
    models = {**any_keys(mapping(FIELDS)), "propertyNames": names}
    header = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Models file of pytest-vlmrobust"}
    return {**header, **mapping({"models": Value(Entry.table, models)})}


def read_models(path: Path) -> dict[str, ModelRef]:
    """Returns the models of a models file by name, in the order written.

    A ModelError names file and line of every mistake.
    """
    expected = "'models:' with one entry per model"
    document = read_document(path, what="models file (--vlm-models)", error=ModelError, expected=expected)
    models = document.mapping(["models"])
    entries = models["models"].table("a mapping of names to models") if models else {}
    refs = read_all(ModelError, [partial(_model, name, entry) for name, entry in entries.items()])
    return {ref.name: ref for ref in refs}


def check_dtype(dtype: str, where: str) -> str:
    """Returns ``dtype`` unchanged."""
    if dtype not in DTYPES:
        raise ModelError(f"{where}: unknown dtype {dtype!r}.{did_you_mean(dtype, DTYPES)} Expected one of {', '.join(DTYPES)}")
    return dtype


def _model(name: str, entry: Entry) -> ModelRef:
    if not re.fullmatch(_SAFE_NAME, name):
        entry.fail("is not a model name: it may have letters, digits, '.', '_' and '-' only, since it becomes part of test ids")
    given = entry.known(FIELDS)
    read: list[Any] = read_all(ModelError, [partial(entry.mapping, FIELDS), partial(read_keys, given, FIELDS)])
    fields = read[1]
    low, high = fields.get("min_pixels"), fields.get("max_pixels")
    if low is not None and high is not None and low > high:
        given["max_pixels"].fail(f"is {high}, which is below min_pixels, {low}")
    if 0 < (declared := sum(name in given for name in _PRICES)) < len(_PRICES):
        entry.fail(f"has {declared} of {', '.join(_PRICES)}. Expected all three, or none: a cost is of both kinds of tokens")
    backend = fields.pop("backend", _SERVE if "serve" in given else _HERE)
    if "serve" in given:
        _refuse_beside_serve(given, backend)
    elif backend == _SERVE:
        given["backend"].fail(f"needs an engine whose server it starts: write serve: vllm (or {', '.join([*PROGRAMS][1:])})")
    read_all(ModelError, [partial(given[key].fail, problem) for key, problem in _misplaced(given, backend)])
    if "max_memory" in given and fields.get("device_map") not in SPREADS:
        given["max_memory"].fail(f"needs a device_map that spreads the weights: {', '.join(SPREADS)}")
    location = _served(entry, fields) if backend == _SERVED else _location(entry, given, fields, backend)
    ref = ModelRef(name=name, backend=backend, location=location, **fields)
    try:
        generation_for(ref)
    except ModelError as error:
        raise ModelError(f"{given.get('generation', entry).where}: {error}") from error
    return ref


def _misplaced(keys: Iterable[str], backend: str) -> Iterator[tuple[str, str]]:
    """Yields each key that does not go with a backend, and the problem."""
    of_servers = {_SERVE: _OF_OTHERS_SERVERS, _SERVED: ()}.get(backend, _OF_SERVERS)
    for key in keys:
        others, why = _NOT_WITH.get(key, ((), ""))
        if key in _LOADED_HERE and backend != _HERE:
            yield key, f"is about checkpoints that load here: it goes with backend: {_HERE} alone"
        elif backend in others:
            yield key, f"does not go with backend: {backend}: {why}"
        elif key in of_servers:
            yield key, "is about servers: it goes with backend: openai alone"


def _refuse_beside_serve(given: Mapping[str, Entry], backend: str) -> None:
    if backend != _SERVE:
        given["backend"].fail("does not go with 'serve', which says how the model is run. Drop one of them")
    if "adapter" in given and (engine := given["serve"].text()) != "vllm":
        given["adapter"].fail(f"does not go with serve: {engine}. Serve it with vllm, or merge it into the weights")
    for name, value in given["engine"].table().items() if "engine" in given else ():
        if not _ARGUMENT.match(name):
            value.fail("is not the name of an argument. Expected one such as max_model_len, with its value behind the colon")
        if name.replace("-", "_") in _SET_BY_SERVE:
            value.fail("is set by the gate: it serves 'path' or 'id' at 'revision', on a free port of 127.0.0.1")


def _served(entry: Entry, fields: dict[str, Any]) -> str:
    if "url" not in fields or "model" not in fields:
        entry.fail("lacks 'url' or 'model': backend: openai needs the base URL of a server, and the name of the model there")
    return Served(fields.pop("url"), fields.pop("model")).location


def _location(entry: Entry, given: Mapping[str, Entry], fields: dict[str, Any], backend: str) -> str:
    """Returns the path or hub id of a model; empty where a third-party backend needs neither."""
    path: Path | None = fields.pop("path", None)
    hub_id: str | None = fields.pop("id", None)
    given_both, given_none = path is not None and hub_id is not None, path is None and hub_id is None
    if given_both or (given_none and backend in _OF_FILES):
        count = "both" if given_both else "neither"
        entry.fail(f"has {count} of 'path' and 'id'; give exactly one: a local path, or a hub id")
    if hub_id is not None and fields.get("remote_code") and not _COMMIT.fullmatch(fields.get("revision", "")):
        given["remote_code"].fail(
            "needs a 'revision' that is a commit, 40 hexadecimal digits: code that was read is to be the code that runs"
        )
    return str(path.resolve()) if path is not None else hub_id or ""


# Published models: the built-in names, their locations, and what they need.


_LISTED: dict[str, Any] = yaml.load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Published:
    """A published model: its location, its family, and its size in billions of parameters as in its name, all experts counted."""

    hub_id: str
    """Empty for a model without public weights, which answers through the API of its makers."""
    family: str
    billions: float = 0.0
    """0 if its makers do not say."""
    prompt_mode: str = "direct"

    @property
    def brings_code(self) -> bool:
        """Whether it needs code from its checkpoint. That code never runs here, so such a model has to be served."""
        return _of_family(self.family, "needs") == "code"

    @property
    def is_served(self) -> bool:
        """Whether it only runs on a server."""
        return self.brings_code or not self.hub_id

    @property
    def extra(self) -> str:
        """The extra of this package that it needs; empty if none."""
        return "openai" if self.is_served else _of_family(self.family, "needs")

    @property
    def weights(self) -> dict[str, float]:
        """Size of the weights in GB (10^9 bytes) by dtype: parameters times bytes, without activations and caches."""
        return {dtype: self.billions * size for dtype, size in _BYTES.items()} if self.billions else {}

    def ref(self, name: str) -> ModelRef:
        """Returns its reference as a model that runs in this process; raises ModelError if it cannot."""
        if not self.hub_id:
            raise ModelError(
                f"--vlm {name!r}: its weights are not published. Gate it where its makers serve it, or at any proxy that speaks "
                f"the protocol of OpenAI: --vlm=openai:BASE_URL#{name}@REVISION"
            )
        if self.brings_code:
            raise ModelError(
                f"--vlm {name!r}: {self.hub_id} runs by Python code in its checkpoint, and no code of a checkpoint is run "
                f"in this process. Serve it where that is allowed, such as by 'vllm serve {self.hub_id} --trust-remote-code'; "
                f"then gate it there: --vlm=openai:BASE_URL#{self.hub_id}@REVISION"
            )
        return ModelRef(
            name=name,
            backend="transformers",
            location=self.hub_id,
            prompt_mode=self.prompt_mode,
            box_convention=_of_family(self.family, "boxes"),
            family=self.family,
            parameters_billion=self.billions,
        )


def _of_family(family: str, fact: str) -> str:
    return str(_LISTED["families"].get(family, {}).get(fact, ""))


def _members(name: str, family: str, id: str = "", sizes: str = "0", mode: str = "direct") -> Iterator[tuple[str, Published]]:  # noqa: A002 - the key of the file
    for size in sizes.split():
        billions = float(size.upper().partition("B")[0])
        yield name.format(size.lower()), Published(id.format(size), family, billions, mode)


PUBLISHED: dict[str, Published] = dict(member for entry in _LISTED["models"] for member in _members(**entry))
"""Built-in names."""


def published_at(hub_id: str) -> tuple[str, Published] | None:
    """Returns the built-in name and the published model of a hub id; None if there is none."""
    return next(((name, model) for name, model in PUBLISHED.items() if hub_id and model.hub_id == hub_id), None)


def described(name: str, model: Published) -> tuple[str, ...]:
    """Returns a table row: name, location, weights by dtype, needs, prompt mode, whether it was tested."""
    size = "not known" if not model.weights else " / ".join(f"{count:.3g}" for count in model.weights.values())
    needs = [f"[{model.extra}]" if model.extra else "", "a server: brings code" if model.brings_code else ""]
    needs += ["a server: API of its makers"] if not model.hub_id else []
    return name, model.hub_id, size, ", ".join(filter(None, needs)), model.prompt_mode, "not run here"


HEADER = ("name", "hub id", f"GB of weights in {' / '.join(_BYTES)}", "needs", "prompt mode", "tested")
