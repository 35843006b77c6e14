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
from collections.abc import Callable, Iterable, Iterator, Mapping
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

_SAFE_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*\Z")
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
_PIXELS = "a whole number of pixels above 0"
_DEVICES = ("cpu", *(f"cuda:{number}" for number in range(16)))
_MEMORY = re.compile(r"\d+(\.\d+)?(GiB|MiB|GB|MB)")
_PRICE = "the price of a million tokens, 0 or more"
_PRICES = ("prompt_price", "completion_price", "currency")
_LEAST = 5e-324
"""The smallest number above 0."""


def read_url_entry(entry: Entry) -> tuple[str, ...]:
    """Returns one base URL, or those of a list."""
    try:
        return read_urls(entry.texts())
    except ValueError as error:
        entry.fail(f"is refused: {error}")


def read_variable(entry: Entry) -> str:
    """Returns the name of an environment variable."""
    text = entry.text("the name of an environment variable")
    if not _VARIABLE.match(text):
        # the value may be the key itself, so it is not repeated
        entry.fail("is not the name of an environment variable. Keys are never written into files: set one, and name it here")
    return text


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
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        file.fail(f"cannot be read: {error}. Expected a text file in UTF-8, relative to this one")
    if not text.strip():
        file.fail("names a file without text. Leave 'system_prompt' out, or fill the file")
    return text


def _template(entry: Entry) -> str:
    text = entry.text(f"text with {_QUESTION} in it")
    if text.count(_QUESTION) != 1:
        entry.fail(f"has {text.count(_QUESTION)} times {_QUESTION}. Expected it exactly once: there the question stands")
    if IMAGE_MARK in text:
        entry.fail("has the character U+FFFC, which stands for an image in questions. Remove it")
    return text


def _device_map(entry: Entry) -> str:
    expected = f"one of {', '.join(SPREADS)}, or a device: cpu, mps, cuda or cuda:N"
    text = entry.text(expected)
    if text not in SPREADS and not DEVICE.match(text):
        entry.refuse(f"{expected}.{did_you_mean(text, (*SPREADS, *_DEVICES))}")
    return text


def _max_memory(entry: Entry) -> dict[str, str]:
    """Returns the memory limit of each device, as written."""
    amounts = {}
    for device, amount in entry.mapping(_DEVICES).items():
        amounts[device] = amount.text("an amount such as 20GiB")
        if not _MEMORY.fullmatch(amounts[device]):
            amount.refuse("an amount such as 20GiB: a number, then GiB, MiB, GB or MB")
    return amounts


def _place_of_tokenizer(entry: Entry) -> str:
    """Returns a checkpoint directory, relative to the models file, or else the text as a hub id."""
    path = entry.file_below(Path(entry.file).parent, "a checkpoint directory, or a hub id 'owner/name'")
    return str(path.resolve()) if path.is_dir() else entry.text()


def _generation(entry: Entry) -> dict[str, Any]:
    """Returns generation parameters, written one by one or as the name of a preset."""
    if not (entry.is_mapping or entry.is_list) and (name := entry.scalar()) in PRESETS:
        return dict(PRESETS[name])
    return {key: value.scalar() for key, value in entry.table(_GENERATION).items()}


FIELDS: Mapping[str, Callable[[Entry], Any]] = {
    "backend": lambda entry: entry.text("the name of a backend"),
    "path": lambda entry: entry.file_below(Path(entry.file).parent, "a checkpoint directory, or a file of scripted answers"),
    "id": lambda entry: entry.text("a hub id 'owner/name'"),
    "revision": lambda entry: entry.text("a branch, tag or commit of the hub, or what a server runs"),
    "remote_code": lambda entry: entry.truth(),
    "dtype": lambda entry: entry.one_of(DTYPES),
    "adapter": lambda entry: str(entry.file_below(Path(entry.file).parent, "the directory of a LoRA adapter").resolve()),
    "quantization": lambda entry: entry.one_of(QUANTIZATIONS),
    "device_map": _device_map,
    "max_memory": _max_memory,
    "prompt_mode": lambda entry: entry.one_of(PROMPT_MODES),
    "generation": _generation,
    "min_pixels": lambda entry: entry.whole_number(_PIXELS, low=1),
    "max_pixels": lambda entry: entry.whole_number(_PIXELS, low=1),
    "box_convention": lambda entry: entry.one_of(CONVENTIONS),
    "family": lambda entry: entry.text("a short name that models of one kind share"),
    "parameters_billion": lambda entry: entry.number("a number above 0", low=_LEAST),
    "policy": lambda entry: entry.text("the name of a thresholds file"),
    "answer": lambda entry: entry.one_of(ANSWERS),
    "url": read_url_entry,
    "model": lambda entry: entry.text("the name that the server gives to the model"),
    "tokenizer": _place_of_tokenizer,
    "key_variable": read_variable,
    "system_prompt": _system_prompt,
    "template": _template,
    "headers": _headers,
    "query": _query,
    "extra_body": _extra_body,
    "engine": lambda entry: {
        name: _json(name, value, _IN_ENVIRONMENT)
        for name, value in entry.table("a mapping such as {tensor_parallel_size: 2}").items()
    },
    "serve": lambda entry: entry.one_of(tuple(PROGRAMS)),
    "reasoning_effort": lambda entry: entry.one_of(_EFFORTS),
    "token_limit_parameter": lambda entry: entry.one_of(_LIMITS).replace("auto", ""),
    "time_limit": lambda entry: entry.number("a number of seconds above 0", low=_LEAST),
    "prompt_price": lambda entry: entry.number(_PRICE, low=0.0),
    "completion_price": lambda entry: entry.number(_PRICE, low=0.0),
    "currency": lambda entry: entry.text("a currency such as EUR"),
}
"""The keys of an entry of the models file, and the reader of each value."""


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
    if not _SAFE_NAME.match(name):
        entry.fail("is not a model name: it may have letters, digits, '.', '_' and '-' only, since it becomes part of test ids")
    given = entry.mapping(FIELDS)
    fields = read_keys(given, FIELDS)
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
    return next(((name, about) for name, about in PUBLISHED.items() if hub_id and about.hub_id == hub_id), None)


def described(name: str, about: Published) -> tuple[str, ...]:
    """Returns a table row: name, location, weights by dtype, needs, prompt mode, whether it was tested."""
    size = "not known" if not about.weights else " / ".join(f"{count:.3g}" for count in about.weights.values())
    needs = [f"[{about.extra}]" if about.extra else "", "a server: brings code" if about.brings_code else ""]
    needs += ["a server: API of its makers"] if not about.hub_id else []
    return name, about.hub_id, size, ", ".join(filter(None, needs)), about.prompt_mode, "not run here"


HEADER = ("name", "hub id", f"GB of weights in {' / '.join(_BYTES)}", "needs", "prompt mode", "tested")
