"""Submitting: `vlmrobust submit`, which writes files for SLURM or Kubernetes to ask a model in parts and judge the answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.core.errors import UsageError

from .arguments import PytestOptions, number, path, say

SET_BY_SCRIPTS = ("--vlm-store", "--vlm-fill", "--vlm-shard", "--vlm-offline", "--vlm-report")
"""Options of pytest set by the files."""
_ASKS_NOTHING = (
    *("--vlm-plan", "--collect-only", "--co", "--setup-plan", "--setup-only", "--fixtures", "--markers", "-h", "--help"),
    *("-V", "--version"),
)
_LONGEST_NAME = 50
"""In characters: Kubernetes allows 63 in the names of pods, including suffixes that it and these files add."""
_NAME = re.compile(rf"[a-z](?:[a-z0-9-]{{0,{_LONGEST_NAME - 2}}}[a-z0-9])?")
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_CLAIM = 253
_ASKED = {"kubernetes": "node selector, tolerations", "slurm": "partition, account, time"}
"""By scheduler, what a cluster may ask for."""


def _job_name(text: str) -> str:
    """Reads the prefix of the names of jobs, in Kubernetes' form, which is stricter than that of SLURM."""
    if not _NAME.fullmatch(text):
        raise BadParameter(
            f"{text!r} is not a name of jobs. Expected up to {_LONGEST_NAME} small letters, digits and '-', a letter first and "
            "no '-' last, such as mmbench-weekly"
        )
    return text


def _claim_name(text: str) -> str:
    """Reads the name of a volume claim in Kubernetes' form."""
    if not _CLAIM.fullmatch(text) or len(text) > _LONGEST_CLAIM:
        raise BadParameter(
            f"{text!r:.80} is not a name of a volume claim. Expected up to {_LONGEST_CLAIM} small letters, digits, "
            "'-' and '.', and a letter or digit at both ends of each part, such as gate-data"
        )
    return text


def submit(
    scheduler: Annotated[Literal["kubernetes", "slurm"], Argument(help="what runs the jobs")],
    options: PytestOptions,
    *,
    parts: Annotated[int, number("parts", "number of parts, each a job")],
    shared: Annotated[str, Option(metavar="DIR", help="a directory that all jobs see, for finished parts")],
    out: Annotated[Path, path("where to write the files; created if missing", "DIR")],
    name: Annotated[str, Option(parser=_job_name, help="name of the jobs")] = "vlmrobust",
    gpus: Annotated[int | None, number("GPUs", "GPUs of each part", default="none")] = None,
    hours: Annotated[int | None, number("hours", "most hours of each part", default="the cluster's")] = None,
    image: Annotated[str, Option(help="kubernetes: container with pytest, model files and data")] = "",
    claim: Annotated[
        str | None, Option(metavar="NAME", parser=_claim_name, help="kubernetes: volume claim to mount at --shared")
    ] = None,
) -> int:
    """Write job files for a cluster: the parts of a run, and the job that judges them.

    Examples:
        vlmrobust submit slurm --parts 8 --shared /shared/gate --out jobs -- --vlm=./my-checkpoint suites/
    """
    _check_options(options)
    needed = {"--image": image, "--claim": claim}
    lacking = [option for option, value in needed.items() if not value]
    if scheduler == "kubernetes" and lacking:
        raise UsageError(f"submit kubernetes needs {' and '.join(lacking)}: what jobs run in, and where they leave their parts")
    if scheduler != "kubernetes" and len(lacking) < len(needed):
        raise UsageError(f"{next(each for each in needed if each not in lacking)} is about kubernetes. Leave it out")
    if not shared.strip():
        raise UsageError("--shared is empty: name a directory that all jobs see")
    if scheduler == "kubernetes" and not shared.startswith("/"):
        raise UsageError(f"--shared {shared!r}: kubernetes mounts the volume there. Expected a path that begins with /")
    if unprintable := [text for text in (shared, image, *options) if not text.isprintable()]:
        raise UsageError(f"{unprintable[0]!r}: has a character that is not written into a job file. Leave it out")
    values = {"name": name, "parts": parts, "gpus": gpus, "hours": hours, "image": image, "claim": claim, "mount": shared}
    files = _render(scheduler, {**values, "shared": shlex.quote(shared), "options": shlex.join(options)})
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a file. Expected a directory for {', '.join(files)}")
    out.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (out / file).write_text(text, encoding="utf-8")
    say(f"{out}: {', '.join(files)}. Look at them, add what your cluster asks for ({_ASKED[scheduler]}), and run")
    say(f"  bash {shlex.quote(str(out / 'submit.sh'))}")
    return 0


def _check_options(options: Sequence[str]) -> None:
    for given in options:
        if given.partition("=")[0] in SET_BY_SCRIPTS:
            raise UsageError(f"{given}: the job files say {', '.join(SET_BY_SCRIPTS)} themselves. Leave it out")
        if given.partition("=")[0] in _ASKS_NOTHING:
            raise UsageError(f"{given}: with it pytest asks no question and judges nothing, and so would the jobs. Leave it out")


def _render(scheduler: str, values: dict[str, object]) -> dict[str, str]:
    """Returns the job files by name, made of the recipes of a scheduler."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from pytest_vlmrobust.shipped import shipped

    folder = shipped("recipes") / "submit"
    recipes = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell and YAML: values are quoted for them
    )
    paths = sorted((folder / scheduler).iterdir())
    return {path.name: recipes.get_template(f"{scheduler}/{path.name}").render(values) for path in paths}
