"""Models before a gate: `vlmrobust serve-command` prints how to serve a model, and `vlmrobust probe` tests its abilities."""

from __future__ import annotations

import dataclasses
import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.words import first_few, quantity

from .arguments import AsJson, ModelsFile, complain, say, whole

if TYPE_CHECKING:
    from pytest_vlmrobust.backends.probing import ModelProbe, ServerProbe
    from pytest_vlmrobust.core.prediction import ModelRef

_DIGITS = 12
_UNKNOWN_REVISION = "REVISION"
_COLUMNS = 80
_INDENT = 10


# `vlmrobust serve-command`.


def serve_command(
    model: Annotated[
        str, Argument(metavar="NAME", help="as after --vlm: a built-in name, an entry of the models file, a directory")
    ],
    *,
    models: ModelsFile = None,
    dtype: Annotated[str | None, Option(help="auto, float32, bfloat16 or float16", show_default="the model's own")] = None,
    port: Annotated[int, Option(metavar="N", parser=whole("a port", "1 to 65535", 1, 65535), help="where to listen")] = 8000,
) -> int:
    """Print how to serve a model with vLLM, SGLang or transformers, and how to gate it there.

    Examples:
        vlmrobust serve-command qwen2-vl-2b --port 8000
    """
    from pytest_vlmrobust.backends import resolve

    ref = resolve(model, models_file=models, dtype=dtype)
    if ref.backend != "transformers":
        raise ModelError(f"{model!r} is answered by the backend {ref.backend!r}. Expected a checkpoint to serve")
    if option := next((name for name in ("adapter", "quantization") if getattr(ref, name)), ""):
        raise ModelError(
            f"{model!r} has the option {option!r}, which no command here passes on. Serve a merged or quantised copy"
        )
    for key in [name for name in ("system_prompt", "template") if getattr(ref, name)]:
        say(f"# {key} is sent by the gate, not by the server: enter the served model in a models file with the same {key}")
    for line in serve_commands(ref, _revision(ref), port):
        say(line)
    return 0


def serve_commands(ref: ModelRef, revision: str, port: int) -> list[str]:
    """Returns the lines for each engine: what to install, how to start it, and how to gate what it serves.

    ``revision`` identifies the weights; the engine is added, because another engine may answer differently.
    """
    from pytest_vlmrobust.backends.serving import served_name, server_command

    lines = [
        *_block("vLLM", ["vllm"], server_command("vllm", ref, port)),
        *_ignored_by_vllm(ref),
        _gate(ref.name, f"{revision}-vllm", port),
        *_block("SGLang", ["sglang"], server_command("sglang", ref, port)),
        _gate(ref.name, f"{revision}-sglang", port),
        *_block(
            "transformers: one request at a time, no log-probabilities",
            ["transformers[serving]", "accelerate", "torchvision"],
            server_command("transformers", ref, port),
        ),
    ]
    if ref.min_pixels or ref.max_pixels:
        lines.append("# it has no option for pixel limits: write them into the checkpoint's preprocessor_config.json")
    return [*lines, _gate(served_name("transformers", ref), f"{revision}-transformers", port)]


def _block(title: str, packages: Sequence[str], command: Sequence[str]) -> list[str]:
    return [f"# {title}. In an environment of its own: {shlex.join(['pip', 'install', *packages])}", shlex.join(command)]


_ROPE_THETA = 10_000.0
"""The base of rotary positions that vLLM uses in the vision tower of the Qwen2-VL family, for any checkpoint."""


def _ignored_by_vllm(ref: ModelRef) -> list[str]:
    """Returns a comment on values of the checkpoint that vLLM ignores."""
    config = Path(ref.location) / "config.json"
    vision = json.loads(config.read_text(encoding="utf-8")).get("vision_config") if config.is_file() else None
    theta = ((vision or {}).get("rope_parameters") or {}).get("rope_theta", _ROPE_THETA)
    if theta == _ROPE_THETA:
        return []
    ignored = f"the rope_theta {theta:g} of vision_config in {config.name}"
    return [f"# vLLM ignores {ignored} and computes with {_ROPE_THETA:g}: answers differ"]


def _gate(model: str, revision: str, port: int) -> str:
    return shlex.join(["pytest", f"--vlm=openai:http://127.0.0.1:{port}/v1#{model}@{revision}", "suites/"])


def _revision(ref: ModelRef) -> str:
    """Returns an identifier of the weights: the digest of a directory's files, or the declared revision of the hub."""
    from pytest_vlmrobust.backends.identity import checkpoint_digests
    from pytest_vlmrobust.core.fingerprint import fingerprint

    folder = Path(ref.location)
    if folder.is_dir():
        return fingerprint(checkpoint_digests(folder))[:_DIGITS]
    return ref.revision or _UNKNOWN_REVISION


# `vlmrobust probe`.


def probe(
    model: Annotated[str, Argument(help="as after --vlm, such as openai:BASE_URL#NAME or a checkpoint directory")],
    *,
    models: ModelsFile = None,
    device: Annotated[str, Option(help="device for weights that are loaded here")] = "auto",
    as_json: AsJson = False,
) -> int:
    """Try a model on a few questions: does it answer, how, does it see images, how fast.

    Examples:
        vlmrobust probe openai:http://localhost:8000/v1#qwen2-vl-2b
    """
    from pytest_vlmrobust.backends import BackendOptions, probing, resolve

    result = probing.probe(resolve(model, models_file=models), BackendOptions(device=device, notice=complain))
    if as_json:
        say(json.dumps({"usable": result.usable, **dataclasses.asdict(result)}, indent=1))
    else:
        for name, text in _lines(result):
            wrapped = textwrap.wrap(text, _COLUMNS - _INDENT, break_long_words=False, break_on_hyphens=False)
            for place, line in enumerate(wrapped):
                say(f"{name if place == 0 else '':<{_INDENT}}{line}")
    return EXIT_CODES[Decision.GO if result.usable else Decision.INCOMPLETE]


def _lines(result: ModelProbe) -> Iterator[tuple[str, str]]:
    """Yields the results of a probe, as names and texts."""
    revision = f", revision {result.revision}" if result.revision else ""
    yield "model", f"{result.model}, by the backend {result.backend}{revision}"
    if result.deployment:
        yield "request", ", ".join(f"{key}: {json.dumps(value)}" for key, value in result.deployment.items())
    for server in result.servers:
        yield "server", _server(server)
        for fact in server.learned:
            yield "", f"it {fact}"
        for way, problem in server.ways.items():
            yield "", f"{way}: {problem or 'works'}"
    if result.backend == "openai" and not result.revision:
        yield "revision", "none is declared: a gate measures and is never GO (write openai:BASE_URL#NAME@REVISION)"
    if result.answer:
        yield "choices", f"are answered by {result.answer}"
        yield "pictures", {True: "reach it: ", False: "DO NOT REACH IT: ", None: ""}[result.pictures] + result.evidence
        counted = ", ".join(f"{size}: {count}" for size, count in result.picture_tokens.items())
        yield "tokens", f"of one image, by its size: {counted}" if counted else "of images are not counted"
        yield "latency", f"{_duration(result.latency_seconds)}, the first answer after {_duration(result.first_seconds)}"
        yield "at once", _at_once(result)
    yield ("usable", "yes") if result.usable else ("UNUSABLE", result.problem)


def _server(server: ServerProbe) -> str:
    if server.problem:
        return server.problem if server.url in server.problem else f"{server.url}: {server.problem}"
    engine = f", engine {server.engine}" if server.engine else ""
    return f"{server.url} answers{engine}; it lists {first_few(server.models) or 'no models'}"


def _at_once(result: ModelProbe) -> str:
    if not result.at_once:
        return "not tried: a request takes too long"
    failed = f", {result.at_once_failed} of them without an answer" if result.at_once_failed else ""
    return f"{quantity(result.at_once, 'request')} in {_duration(result.at_once_seconds)}{failed}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
