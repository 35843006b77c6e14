"""Servers: `vlmrobust serve-command`, which prints how to start one for a model, and how to gate it there."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import ModelError

from .arguments import Commands, add_command, counting, say

if TYPE_CHECKING:
    from pytest_vlmrobust.core.prediction import ModelRef

_DIGITS = 12
_UNKNOWN_REVISION = "REVISION"


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    serve = add_command(
        commands,
        "serve-command",
        "print how to serve a model with vLLM, SGLang or transformers, and how to gate it there",
        "vlmrobust serve-command qwen2-vl-2b --port 8000",
    )
    serve.add_argument("model", metavar="NAME", help="as after --vlm: a built-in name, an entry of the models file, a directory")
    serve.add_argument("--models", type=Path, metavar="FILE", help="the models file")
    serve.add_argument("--dtype", metavar="DTYPE", help="auto, float32, bfloat16 or float16 (default: the model's own)")
    serve.add_argument("--port", type=counting("ports"), default=8000, metavar="N", help="where to listen (default: %(default)s)")
    serve.set_defaults(run=_serve_command)


def _serve_command(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.backends import resolve

    ref = resolve(options.model, models_file=options.models, dtype=options.dtype)
    if ref.backend != "transformers":
        raise ModelError(f"{options.model!r} is answered by the backend {ref.backend!r}. Expected a checkpoint to serve")
    for line in serve_commands(ref, _revision(ref), options.port):
        say(line)
    return 0


def serve_commands(ref: ModelRef, revision: str, port: int) -> list[str]:
    """Returns the lines for each engine: how to start it, and how to gate what it serves.

    Args:
        ref: a checkpoint.
        revision: what tells its weights from others; the engine is added, for another one may answer otherwise.
        port: where the server listens.
    """
    limits = {name: getattr(ref, name) for name in ("min_pixels", "max_pixels") if getattr(ref, name) is not None}
    hub = [] if Path(ref.location).is_dir() or not ref.revision else ["--revision", ref.revision]
    common = ["--dtype", ref.dtype, "--host", "127.0.0.1", "--port", str(port)]
    named = [*hub, "--served-model-name", ref.name, *common]
    kwargs = ["--mm-processor-kwargs", json.dumps(limits)] if limits else []
    config = ["--mm-process-config", json.dumps({"image": limits})] if limits else []
    pinned = f"{ref.location}@{ref.revision}" if hub else ref.location
    lines = [
        *_block("vLLM", ["vllm", "serve", ref.location, *named, *kwargs]),
        _gate(ref.name, f"{revision}-vllm", port),
        *_block("SGLang", ["python", "-m", "sglang.launch_server", "--model-path", ref.location, *named, *config]),
        _gate(ref.name, f"{revision}-sglang", port),
        *_block("transformers: one request at a time, no log-probabilities", ["transformers", "serve", pinned, *common]),
    ]
    if limits:
        lines.append("# it has no option for pixel limits: write them into the checkpoint's preprocessor_config.json")
    return [*lines, _gate(pinned, f"{revision}-transformers", port)]


def _block(title: str, command: Sequence[str]) -> list[str]:
    return [f"# {title}", shlex.join(command)]


def _gate(model: str, revision: str, port: int) -> str:
    return shlex.join(["pytest", f"--vlm=openai:http://127.0.0.1:{port}/v1#{model}@{revision}", "suites/"])


def _revision(ref: ModelRef) -> str:
    """Returns what tells the weights from others: of a directory the digest of its files, of the hub what is declared."""
    from pytest_vlmrobust.backends.digests import checkpoint_digests
    from pytest_vlmrobust.core.fingerprint import fingerprint

    folder = Path(ref.location)
    if folder.is_dir():
        return fingerprint(checkpoint_digests(folder))[:_DIGITS]
    return ref.revision or _UNKNOWN_REVISION
