"""Power: `vlmrobust power`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.evaluation.power.study import NOTHING_LOST, SYNTHETIC, Shift, Study

from .arguments import AsJson, DataFolder, Seed, find_run, in_quarantine, number, say, tell

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.power.study import Result
    from pytest_vlmrobust.policies import Policy


def _correlation(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise BadParameter(f"{text!r} is not a correlation. Expected a number from 0 to 1")
    return number


def _shift(text: str) -> Shift:
    metric, equals, value = text.partition("=")
    try:
        number = float(value.removesuffix("pp").removesuffix("%")) / (100.0 if value.endswith(("pp", "%")) else 1.0)
    except ValueError:
        number = math.nan
    if not equals or not -10.0 < number < 10.0:
        raise UsageError(f"--shift {text!r}: expected METRIC=VALUE, such as mean_drop=3.1pp or clean_accuracy=0.85")
    return Shift(metric, number)


@in_quarantine(seconds=None)  # it computes as long as it is told to
def power(
    policies: Annotated[list[str] | None, Argument(metavar="POLICY", help="policy files, or names of shipped policies")] = None,
    *,
    samples: Annotated[
        int | None, number("samples", "questions, or identities", default="as published, as in the run, or all of FILE")
    ] = None,
    profiles: Annotated[
        list[str] | None,
        Option(
            "--profile",
            metavar="NAME|RUN",
            help=f"the simulated model (repeatable): {', '.join(SYNTHETIC)}, another of the docs, "
            "MMBench/Qwen3-VL-8B and its like, or a run",
            show_default=NOTHING_LOST,
        ),
    ] = None,
    dataset: Annotated[
        str,
        Option(
            metavar="NAME|FILE",
            help="name of the dataset for rules, or data as after --vlm-dataset, for its size, groups and categories; for the "
            "Observatory one collection",
            show_default="both",
        ),
    ] = "",
    folder: DataFolder = None,
    groups: Annotated[
        int | None,
        number(
            "groups",
            "groups of questions, such as source images, of equal size",
            default="independent questions, or the groups of FILE",
        ),
    ] = None,
    correlation: Annotated[
        float | None,
        Option(metavar="R", parser=_correlation, help="how alike the answers of a group are, 0 to 1", show_default="0.5"),
    ] = None,
    shifts: Annotated[
        list[Shift] | None,
        Option("--shift", metavar="METRIC=VALUE", parser=_shift, help="set a metric of each profile to a value"),
    ] = None,
    models: Annotated[int, number("models", "models of the run, all with this profile and independent", "K")] = 1,
    runs: Annotated[int, number("runs", "simulated runs of each profile", "R")] = 100,
    seed: Seed = 0,
    no_search: Annotated[bool, Option("--no-search", help="do not search how many questions would decide 80 % of runs")] = False,
    table: Annotated[
        bool, Option("--table", help="one line for each profile, in Markdown; without POLICY, of all shipped policies")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Simulate how often a policy decides GO, NO-GO or INCONCLUSIVE for known models.

    Examples:
        vlmrobust power ours.yaml --samples 500 --no-search
        vlmrobust power default --profile latest
    """
    from pytest_vlmrobust.reporting.power import result_json, result_table
    from pytest_vlmrobust.shipped import shipped

    if not policies and not table:
        raise UsageError("vlmrobust power: name a policy, such as default, or ask for the --table of all shipped ones")
    if not policies and (groups or correlation is not None):
        raise UsageError(
            "vlmrobust power: --groups and --correlation are about questions: name a policy about them, such as default"
        )
    study = Study(
        [_run_of(name) or name for name in profiles or ()],
        dataset,
        folder,
        samples=samples,
        groups=groups,
        correlation=correlation,
        shifts=shifts or (),
        models=models,
        runs=runs,
        seed=seed,
        searches=not (no_search or table),
        several=table,
    )
    simulated, empty = {}, {}
    for files in [policies] if policies else [[entry.stem] for entry in sorted(shipped("thresholds").glob("*.yaml"))]:
        name = " + ".join(Path(file).stem for file in files)
        results, why = study.results(_policy(files), name, _progress)
        if not results:
            empty[name] = why
            continue
        simulated[name] = [result_json(result, study) for result in results] if as_json else []
        if table:
            say(result_table(name, results, study))
        elif not as_json:
            _print(results, study)
    if as_json and simulated:
        say(json.dumps(simulated, indent=1))
    if empty:
        raise UsageError("\n".join(f"no rule of {name} can be simulated: {why}" for name, why in empty.items()))
    return 0


def _print(results: Sequence[Result], study: Study) -> None:
    from pytest_vlmrobust.reporting.power import result_lines, result_notes

    for result in results:
        say("\n".join(result_lines(result, study)))
        for note in result_notes(result, study):
            tell(f"  {note}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text)


def _policy(files: Sequence[str]) -> Policy:
    from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, thresholds_file
    from pytest_vlmrobust.metrics.record import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    paths = [thresholds_file(name, Path, given_as="POLICY") for name in files]
    return load_policy(paths, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())


def _run_of(name: str) -> Path | None:
    """Returns the directory of the run named by a profile, if it names one."""
    run = find_run(name)
    return run if run is not None and run.is_dir() else None
