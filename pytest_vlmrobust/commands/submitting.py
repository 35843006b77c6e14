"""Submitting: `vlmrobust submit`, which writes files for SLURM or Kubernetes to ask a model in parts and judge the answers."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from pytest_vlmrobust.core.errors import UsageError, typed_path

from .arguments import Commands, add_command, counting, say

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
_RETRIES = 3
"""Maximum restarts by Kubernetes of a part that did not answer everything, not counting moves of its pod."""
_GRACE = 120
"""Seconds from the signal that ends a pod until it is killed: pytest ends and the store is copied."""
_KEPT = 7 * 24 * 3600
"""Seconds for which a job and its log are kept after its end."""


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    submit = add_command(
        commands,
        "submit",
        "write job files for a cluster: the parts of a run, and the job that judges them",
        "vlmrobust submit slurm --parts 8 --shared /shared/gate --out jobs -- --vlm=./my-checkpoint suites/",
    )
    submit.add_argument("scheduler", choices=sorted(_SCHEDULERS), help="what runs the jobs")
    submit.add_argument("--parts", type=counting("parts"), required=True, metavar="N", help="number of parts, each a job")
    submit.add_argument("--shared", required=True, metavar="DIR", help="a directory that all jobs see, for finished parts")
    submit.add_argument(
        "--out", type=typed_path, required=True, metavar="DIR", help="where to write the files; created if missing"
    )
    submit.add_argument("--name", type=_job_name, default="vlmrobust", metavar="NAME", help="name of the jobs")
    submit.add_argument("--gpus", type=counting("GPUs"), metavar="N", help="GPUs of each part (default: none)")
    submit.add_argument("--hours", type=counting("hours"), metavar="N", help="most hours of each part (default: the cluster's)")
    submit.add_argument("--image", default="", metavar="IMAGE", help="kubernetes: container with pytest, model files and data")
    submit.add_argument("--claim", type=_claim_name, metavar="NAME", help="kubernetes: volume claim to mount at --shared")
    submit.add_argument("options", nargs="+", metavar="OPTION", help="after --: the options and suites of pytest")
    submit.set_defaults(run=_submit)


def _job_name(text: str) -> str:
    """Reads the prefix of the names of jobs, in Kubernetes' form, which is stricter than that of SLURM."""
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of jobs. Expected up to {_LONGEST_NAME} small letters, digits and '-', a letter first and "
            "no '-' last, such as mmbench-weekly"
        )
    return text


def _claim_name(text: str) -> str:
    """Reads the name of a volume claim in Kubernetes' form."""
    if not _CLAIM.fullmatch(text) or len(text) > _LONGEST_CLAIM:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is not a name of a volume claim. Expected up to {_LONGEST_CLAIM} small letters, digits, "
            "'-' and '.', and a letter or digit at both ends of each part, such as gate-data"
        )
    return text


def _submit(options: argparse.Namespace) -> int:
    for given in options.options:
        if given.partition("=")[0] in SET_BY_SCRIPTS:
            raise UsageError(f"{given}: the job files say {', '.join(SET_BY_SCRIPTS)} themselves. Leave it out")
        if given.partition("=")[0] in _ASKS_NOTHING:
            raise UsageError(f"{given}: with it pytest asks no question and judges nothing, and so would the jobs. Leave it out")
    needed = {"--image": options.image, "--claim": options.claim}
    lacking = [name for name, value in needed.items() if not value]
    given = [name for name, value in needed.items() if value]
    if options.scheduler == "kubernetes" and lacking:
        raise UsageError(f"submit kubernetes needs {' and '.join(lacking)}: what jobs run in, and where they leave their parts")
    if options.scheduler != "kubernetes" and given:
        raise UsageError(f"{given[0]} is about kubernetes. Leave it out")
    if not options.shared.strip():
        raise UsageError("--shared is empty: name a directory that all jobs see")
    if options.scheduler == "kubernetes" and not options.shared.startswith("/"):
        raise UsageError(f"--shared {options.shared!r}: kubernetes mounts the volume there. Expected a path that begins with /")
    files = _SCHEDULERS[options.scheduler](options)
    if options.out.exists() and not options.out.is_dir():
        raise UsageError(f"--out {str(options.out)!r} is a file. Expected a directory for {', '.join(files)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (options.out / name).write_text(text, encoding="utf-8")
    asked = "node selector, tolerations" if options.scheduler == "kubernetes" else "partition, account, time"
    say(f"{options.out}: {', '.join(files)}. Look at them, add what your cluster asks for ({asked}), and run")
    say(f"  bash {shlex.quote(str(options.out / 'submit.sh'))}")
    return 0


# The steps, which are the same under every scheduler.


def fill_steps(pytest_options: Sequence[str], shared: str, index: str) -> str:
    """Returns the shell steps of a part; its exit code is that of ``vlmrobust fill``, which receives signals to the job.

    ``pytest_options`` follow ``pytest``, ``shared`` is the directory that all jobs see, and ``index`` the scheduler's variable
    that numbers the parts (also read by ``--vlm-shard``).
    """
    return f"""\
set -u
python="${{PYTHON:-python}}"
shared={shlex.quote(shared)}

exec "$python" -m pytest_vlmrobust.cli fill --copy-to "$shared/parts/${index}" -- {shlex.join(pytest_options)}
"""


def judge_steps(pytest_options: Sequence[str], shared: str) -> str:
    """Returns the shell steps after all parts: merge the available parts, and judge without a model.

    If a part is lost, answers are missing and the gate ends INCOMPLETE. The exit code is that of the gate.
    """
    return f"""\
set -u
python="${{PYTHON:-python}}"
shared={shlex.quote(shared)}
work="$(mktemp -d)" || exit 1
trap 'rm -rf "$work"' EXIT

parts=("$shared"/parts/*/predictions.sqlite)
"$python" -m pytest_vlmrobust.cli merge "${{parts[@]%/*}}" --out "$work/all" || exit 11

"$python" -m pytest {shlex.join(pytest_options)} --vlm-offline --vlm-store="$work/all" --vlm-report="$shared/report"
status=$?

new="$shared/store.new"
rm -rf "$new" && cp -r "$work/all" "$new" && rm -rf "$shared/store" && mv "$new" "$shared/store"
exit "$status"
"""


# SLURM: an array job, and a job that waits for all of it.


def slurm_files(options: argparse.Namespace) -> dict[str, str]:
    """Returns the job files for SLURM by name."""
    gpus = [f"#SBATCH --gres=gpu:{options.gpus}"] if options.gpus else []
    array = f"#SBATCH --array=0-{options.parts - 1}"
    fill = [
        f"#SBATCH --job-name={options.name}-fill",
        array,
        "#SBATCH --output=fill-%A_%a.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        *gpus,
        *([f"#SBATCH --time={options.hours}:00:00"] if options.hours else []),
        "# Where a copy takes longer than KillWait of the cluster (30 s): have the signal sent so many seconds before the limit",
        "##SBATCH --signal=B:TERM@120",
    ]
    judge = [f"#SBATCH --job-name={options.name}-judge", "#SBATCH --output=judge-%j.log"]
    submit = """\
#!/usr/bin/env bash
set -eu
here="$(cd -- "$(dirname -- "$0")" && pwd)"
fill="$(sbatch --parsable "$here/fill.sbatch")"
# afterany: what is there is judged, also after a part that failed or ran out of time. afterok would then wait for ever
sbatch --dependency="afterany:${fill%%;*}" "$here/judge.sbatch"
"""
    return {
        "fill.sbatch": _script(fill, fill_steps(options.options, options.shared, "SLURM_ARRAY_TASK_ID")),
        "judge.sbatch": _script(judge, judge_steps(options.options, options.shared)),
        "submit.sh": submit,
    }


def _script(head: Sequence[str], steps: str) -> str:
    return "\n".join(["#!/usr/bin/env bash", *head, "", steps])


# Kubernetes: an indexed job, and a job that is created when it has ended.


def kubernetes_files(options: argparse.Namespace) -> dict[str, str]:
    """Returns the job files for Kubernetes by name."""
    import yaml

    fill = _job("fill", options, fill_steps(options.options, options.shared, "JOB_COMPLETION_INDEX"))
    fill["spec"] |= {
        "completions": options.parts,
        "parallelism": options.parts,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": _RETRIES,
        "maxFailedIndexes": options.parts,
    }
    if options.hours:
        fill["spec"]["activeDeadlineSeconds"] = options.hours * 3600  # of all parts together: they run side by side
    container = fill["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "JOB_COMPLETIONS", "value": str(options.parts)}]  # Kubernetes does not give pods their number
    if options.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": options.gpus}}
    judge = _job("judge", options, judge_steps(options.options, options.shared))
    judge["spec"]["backoffLimit"] = 0
    job = f"{options.name}-fill"
    submit = f"""\
#!/usr/bin/env bash
set -eu
here="$(cd -- "$(dirname -- "$0")" && pwd)"
kubectl apply -f "$here/fill.yaml"
while true; do
    if state="$(kubectl get job {job} --ignore-not-found -o jsonpath='{{.metadata.name}} {{.status.conditions[*].type}}')"; then
        case "$state" in
            "")
                echo "The job {job} was deleted: nothing is judged. To judge what is there: kubectl apply -f $here/judge.yaml" >&2
                exit 1
                ;;
            *Complete* | *Failed*) break ;;
        esac
    fi  # else the cluster did not answer
    sleep 10
done
kubectl apply -f "$here/judge.yaml"
"""
    return {
        "fill.yaml": yaml.safe_dump(fill, sort_keys=False, width=1000),
        "judge.yaml": yaml.safe_dump(judge, sort_keys=False, width=1000),
        "submit.sh": submit,
    }


def _job(step: str, options: argparse.Namespace, steps: str) -> dict[str, Any]:
    container = {
        "name": "gate",
        "image": options.image,
        "command": ["bash", "-c", steps],
        "volumeMounts": [{"name": "shared", "mountPath": options.shared}],
    }
    volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": options.claim}}]
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE,
        "containers": [container],
        "volumes": volumes,
    }
    moved = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}  # preempted, drained
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{options.name}-{step}"},
        "spec": {
            "ttlSecondsAfterFinished": _KEPT,
            "podFailurePolicy": {"rules": [moved]},
            "template": {"spec": pod},
        },
    }


_SCHEDULERS: dict[str, Callable[[argparse.Namespace], dict[str, str]]] = {
    "slurm": slurm_files,
    "kubernetes": kubernetes_files,
}
