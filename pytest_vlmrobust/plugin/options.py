"""Settings: every option, its ini value, its help and its place in the header, in one dataclass."""

from __future__ import annotations

import argparse as arguments
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError, did_you_mean
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED
from pytest_vlmrobust.core.prediction import ANSWERS

RERUN = {"failed": Outcome.FAIL, "errors": Outcome.ERROR, "inconclusive": Outcome.INCONCLUSIVE}
"""Values of ``--vlm-rerun``."""
ENGINES = ("local", "ray")
"""Values of ``--vlm-engine``."""
MODES = ("full", "adaptive")
"""Values of ``--vlm-mode``."""
COMMON = "common"
"""Value of ``--vlm-baseline-samples``."""
_CHOICES: Mapping[str, Collection[str]] = {
    "vlm_mode": MODES,
    "vlm_answer": ANSWERS,
    "vlm_rerun": RERUN,
    "vlm_engine": ENGINES,
    "vlm_baseline_samples": (COMMON,),
}
"""Options with a fixed set of values."""
BASIC = (
    *("vlm", "vlm_models", "vlm_dataset", "vlm_data", "vlm_sample", "vlm_thresholds"),
    *("vlm_report", "vlm_baseline", "vlm_plan", "vlm_rerun", "vlm_device"),
)
"""The options that most runs need; ``pytest --help`` and the documentation list the others apart."""
AUTO = "auto"
ENVIRONMENT_DATA = ("VLMROBUST_DATA", "LMUData")


def option(default: Any, text: str, *, ini: str = "string", **argparse: Any) -> Any:
    """Declares an option; ``ini`` is the type of the ini value of the same name, the rest is for argparse."""
    return field(default=default, metadata={"help": text, "ini": ini, "argparse": argparse})


def repeatable(text: str, metavar: str) -> Any:
    """Declares a repeatable option; in an ini file, one value per line."""
    return option((), text, ini="linelist", action="append", metavar=metavar)


def count_or_auto(value: object) -> int | str:
    """Reads a whole number, or ``auto``."""
    text = str(value).strip()
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError:
        raise arguments.ArgumentTypeError(f"{text!r}: expected a whole number, or {AUTO}") from None


@dataclass(frozen=True, slots=True)
class Settings:
    """All options of a run. The command line overrides the ini file, which overrides the default."""

    vlm: tuple[str, ...] = repeatable(
        "model to gate (repeatable): models file entry, built-in name (tiny, qwen2-vl-2b), "
        "openai:BASE_URL#MODEL@REVISION, scripted:FILE, checkpoint directory, or hub id owner/name",
        "NAME",
    )
    vlm_models: str = option("", "YAML file that describes models: backend, path, revision, dtype, prompt mode", metavar="FILE")
    vlm_dataset: tuple[str, ...] = repeatable(
        "dataset (repeatable; default: shapes and words): an embedded name, a .tsv, a .jsonl, a folder, or a name in --vlm-data",
        "NAME_OR_PATH",
    )
    vlm_data: str = option("", "directory of benchmark files (else $VLMROBUST_DATA, $LMUData)", metavar="DIR")
    vlm_thresholds: tuple[str, ...] = repeatable(
        "policy file, or the name of a shipped policy (repeatable; later ones override earlier ones; default: tiny "
        "for the model tiny, default for all others)",
        "FILE",
    )
    vlm_mode: str = option(
        "",
        "full: use every question; adaptive: stop a test once its verdict is clear at the declared risk (default: as "
        "in the policy, else full)",
        metavar="full|adaptive",
    )
    vlm_sample: str = option(
        "",
        "use N questions or P%% of each dataset, stratified by category, seed 42; groups that count only together "
        "stay together; 20%%rows draws single rows",
        metavar="N|P%",
    )
    vlm_store: str = option(".vlmrobust", "directory of answers and runs", metavar="DIR")
    vlm_network_store: bool = option(
        False,
        "allow a store on a network file system, where SQLite's locks rarely work",
        ini="bool",
        action="store_true",
    )
    vlm_offline: bool = option(False, "use only answers from the store; never call a model", ini="bool", action="store_true")
    vlm_fill: bool = option(
        False,
        "collect the answers that the tests need, and judge nothing; exits with 0 once the store has all of them, else with 11",
        ini="bool",
        action="store_true",
    )
    vlm_shard: str = option(
        "",
        "with --vlm-fill, collect part I of N (default: from the variables of SLURM, Kubernetes, GitLab, Buildkite or "
        "CircleCI, else everything); vlmrobust merge joins the stores",
        metavar="I/N",
    )
    vlm_report: str = option(
        "", "write report.html, results.json, cells.csv, summary.md, model_card.md, junit.xml and more to DIR", metavar="DIR"
    )
    vlm_junit_plain: bool = option(
        False,
        "leave the properties of test cases out of JUnit files, for readers that validate the schema of Jenkins; "
        "results.json has them all",
        ini="bool",
        action="store_true",
    )
    vlm_junit_strict: bool = option(
        False,
        "make INCONCLUSIVE a failure in the test case `decision` of JUnit files: some readers show a skipped one as passed",
        ini="bool",
        action="store_true",
    )
    vlm_reference: str = option(
        "no_image",
        "the model whose errors are the unit of mean_corruption_error; no_image: the same model without images",
        metavar="NAME",
    )
    vlm_baseline: str = option(
        "", "earlier run to compare each cell with, paired by question: its directory, latest or previous", metavar="RUN"
    )
    vlm_baseline_samples: str = option(
        "",
        "common: compare only the questions that both runs have, where others are an error otherwise",
        metavar=COMMON,
    )
    vlm_update_baseline: bool = option(
        False,
        "after a GO, replace the evidence in --vlm-baseline by that of this run; refused in CI",
        ini="bool",
        action="store_true",
    )
    vlm_plan: bool = option(
        False,
        "print settings, questions, inferences, cached answers, time and tokens, and stop before weights load; exits with 5",
        ini="bool",
        action="store_true",
    )
    vlm_rerun: str = option(
        "",
        "run only the tests that failed, were errors, or were undecided in the last run of these models",
        metavar="failed|errors|inconclusive",
    )
    vlm_aa: bool = option(
        False,
        "after the tests, repeat some answers (other batches, other order, with xdist another process) and print how "
        "many change; the store keeps the first ones",
        ini="bool",
        action="store_true",
    )
    vlm_aa_sample: int = option(200, "answers of each model and dataset that --vlm-aa repeats", metavar="N", type=int)
    vlm_device: str = option("auto", "auto, cpu, mps, cuda or cuda:N", metavar="DEVICE")
    vlm_engine: str = option(
        "local",
        "where weights run: local, in this process, or ray, in actors of a Ray cluster",
        metavar="local|ray",
    )
    vlm_ray_address: str = option(
        "",
        "with --vlm-engine ray, the cluster, such as auto or HOST:6379 (default: $RAY_ADDRESS, else this machine)",
        metavar="ADDRESS",
    )
    vlm_ray_actors: int = option(
        0, "actors that each load the weights; 0: as many as the nodes have room for", metavar="N", type=int
    )
    vlm_ray_cpus: int = option(1, "CPU cores that Ray reserves for each actor", metavar="N", type=int)
    vlm_ray_gpus: float = option(
        1.0,
        "GPUs that Ray reserves for each actor; with 0.5, two actors share one",
        metavar="SHARE",
        type=float,
    )
    vlm_dtype: str = option(
        "", "auto, float32, bfloat16 or float16 (default: the model's own; float32 on a CPU)", metavar="DTYPE"
    )
    vlm_answer: str = option(
        "",
        "how a choice is answered in direct mode: by the most probable letter, or as text (default: models file, else "
        "letters if probabilities are known)",
        metavar="letters|text",
    )
    vlm_batch_size: int | str = option(
        16,
        "requests in a batch: a number, or auto, which times the first batches and halves them when memory runs out",
        metavar="N|auto",
        type=count_or_auto,
    )
    vlm_timeout: int = option(
        0,
        "seconds for a batch, loading, or another call of the backend; a slower model is dropped, and its tests "
        "become errors. 0: no limit",
        metavar="SECONDS",
        type=int,
    )
    vlm_budget_seconds: int = option(
        0,
        "seconds after which no new model call starts; tests without all answers end INCONCLUSIVE, and a later run "
        "goes on. 0: no limit",
        metavar="N",
        type=int,
    )
    vlm_budget_tokens: int = option(
        0,
        "the same for tokens of prompts and answers, over all models and workers. 0: no limit",
        metavar="N",
        type=int,
    )
    vlm_preprocessing: str = option(
        "fast",
        "how models of the Qwen2-VL family preprocess images: fast, by table, or library, by transformers; both give "
        "the same bits",
        metavar="fast|library",
    )
    vlm_seed: int = option(AUGMENTATION_SEED, "seed of all random perturbations", metavar="N", type=int)
    vlm_patches: str = option("2,3", "grids of the patches suite: patches on a side, of 2, 3, 4 and 5", metavar="N,N")
    vlm_patch_stop: bool = option(
        False,
        "skip the remaining patches of a question once one is right: the same PCRI and RCI with fewer calls, without "
        "the map of positions",
        ini="bool",
        action="store_true",
    )
    vlm_patch_attempts: bool = option(
        False,
        "also measure pcri_matched if no rule needs it: as many calls with the whole image, shifted by a few pixels, "
        "as with patches",
        ini="bool",
        action="store_true",
    )
    vlm_threads: int = option(1, "threads that perturb images ahead of the model", metavar="N", type=int)

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Reads the options and ini values of a pytest run."""
        settings = cls(**{f.name: _resolve(config, f.name, f.default, f.metadata) for f in fields(cls)})
        for name in ("vlm_batch_size", "vlm_threads", "vlm_aa_sample", "vlm_ray_cpus"):
            if getattr(settings, name) != AUTO and getattr(settings, name) < 1:
                raise pytest.UsageError(f"--{name.replace('_', '-')} {getattr(settings, name)}: expected 1 or more")
        not_negative = {"vlm_timeout": "seconds", "vlm_budget_seconds": "seconds", "vlm_budget_tokens": "tokens"}
        for name, unit in {**not_negative, "vlm_ray_actors": "actors"}.items():
            if getattr(settings, name) < 0:
                raise pytest.UsageError(f"--{name.replace('_', '-')} {getattr(settings, name)}: expected 0 or more {unit}")
        if not (0 < settings.vlm_ray_gpus <= 1 or (settings.vlm_ray_gpus > 1 and settings.vlm_ray_gpus.is_integer())):
            raise pytest.UsageError(
                f"--vlm-ray-gpus {settings.vlm_ray_gpus:g}: expected a share of a GPU, above 0 and at most 1, or a whole number"
            )
        _refuse_empty(config, settings)
        for name, choices in _CHOICES.items():
            value = getattr(settings, name)
            if value not in ("", *choices):
                known = f"one of {', '.join(choices)}" if len(choices) > 1 else next(iter(choices))
                raise pytest.UsageError(f"--{name.replace('_', '-')} {value!r}: expected {known}.{did_you_mean(value, choices)}")
        return settings

    def check(self) -> None:
        """Refuses options that contradict each other, and an update of the baseline in continuous integration."""
        from pytest_vlmrobust.backends.contract import MOST_IN_A_BATCH

        if self.vlm_update_baseline and os.environ.get("CI"):
            raise UsageError(
                "--vlm-update-baseline is refused where the environment variable CI is set: a gate must not move its own bar. "
                "Run it by hand, look at the report, and commit the baseline"
            )
        if self.vlm_update_baseline and not self.vlm_baseline:
            raise UsageError("--vlm-update-baseline needs --vlm-baseline DIR, which says where the baseline is")
        if self.vlm_baseline_samples and not self.vlm_baseline:
            raise UsageError("--vlm-baseline-samples needs --vlm-baseline DIR: nothing is compared without it")
        if self.vlm_batch_size != AUTO and int(self.vlm_batch_size) > MOST_IN_A_BATCH:
            raise UsageError(f"--vlm-batch-size {self.vlm_batch_size}: expected at most {MOST_IN_A_BATCH}, or auto")
        if self.vlm_aa and self.vlm_offline:
            raise UsageError("--vlm-aa asks the model again, and --vlm-offline forbids asking it: leave one of them out")
        budgets = [f"--{name.replace('_', '-')}" for name in ("vlm_budget_seconds", "vlm_budget_tokens") if getattr(self, name)]
        if self.vlm_aa and budgets:
            raise UsageError(f"--vlm-aa asks again after the tests, which {budgets[0]} would forbid: leave one of them out")
        self._check_engine()
        if self.vlm_shard and not self.vlm_fill:
            raise UsageError("--vlm-shard: a part of the answers decides nothing. Add --vlm-fill, which asks and judges nothing")
        unused = ("vlm_offline", "vlm_aa", "vlm_update_baseline", "vlm_report", "vlm_rerun")
        if self.vlm_fill and (given := [f"--{name.replace('_', '-')}" for name in unused if getattr(self, name)]):
            raise UsageError(f"--vlm-fill judges nothing, so {' and '.join(given)} would do nothing: leave it out")
        if self.vlm_aa and self.vlm_batch_size == AUTO:
            raise UsageError("--vlm-aa asks again in batches half as large: give --vlm-batch-size as a number, not as auto")

    def _check_engine(self) -> None:
        """Refuses options that the engine does not know."""
        about_actors = [f for f in fields(self) if f.name.startswith("vlm_ray_") and getattr(self, f.name) != f.default]
        if self.vlm_engine != "ray" and about_actors:
            raise UsageError(f"--{about_actors[0].name.replace('_', '-')} is about Ray. Add --vlm-engine ray, or leave it out")
        if self.vlm_engine == "ray" and self.vlm_batch_size == AUTO:
            raise UsageError("--vlm-batch-size auto finds a size by timing this process. With --vlm-engine ray give a number")
        if self.vlm_engine == "ray" and ":" in self.vlm_device:
            raise UsageError(f"--vlm-device {self.vlm_device}: Ray gives each actor its GPU. Say --vlm-device cuda")


def data_directory(settings: Settings) -> str:
    """Returns the directory of benchmarks from the option or the environment; empty if neither is set."""
    return settings.vlm_data or next((os.environ[name] for name in ENVIRONMENT_DATA if os.environ.get(name)), "")


def _refuse_empty(config: pytest.Config, settings: Settings) -> None:
    """Refuses options without a value, for example from an unset variable in a script: the run might then test less."""
    if not settings.vlm_store.strip():
        raise pytest.UsageError("--vlm-store is empty: name a directory, such as --vlm-store=.vlmrobust")
    if "" in settings.vlm:
        raise pytest.UsageError("--vlm is empty: name a model, such as --vlm=tiny")
    for f in fields(Settings):
        given = config.getoption(f.name)
        texts = given if isinstance(given, list) else [given]
        if any(isinstance(text, str) and not text.strip() for text in texts):
            raise pytest.UsageError(f"--{f.name.replace('_', '-')} is empty: give it a value, or leave it out")


def _resolve(config: pytest.Config, name: str, default: Any, metadata: Mapping[str, Any]) -> Any:
    given = config.getoption(name)
    value = config.getini(name) if given is None or given is False else given
    if isinstance(default, tuple):
        return tuple(value)
    if isinstance(default, bool):
        return bool(value)
    if isinstance(default, int | float):
        read: Callable[[Any], Any] = metadata["argparse"].get("type", int)
        try:
            return read(value)
        except (ValueError, arguments.ArgumentTypeError):
            expected = "a number" if read is float else "a whole number" if read is int else f"a whole number, or {AUTO}"
            raise pytest.UsageError(f"ini value {name} = {value!r}: expected {expected} ({metadata['help']})") from None
    return str(value)


_DESCRIBING = ("help", "markers", "version")
"""Options of pytest that describe it and end it before there is a session."""
_SETTING_UP = ("setupplan", "setuponly")
"""Options of pytest that show or do only the set-up of tests."""
_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "cacheshow")
"""Options of pytest that list things in a session, in which no test runs."""
SHOWING = (*_DESCRIBING, *_LISTING)
"""Options with which exit code 0 says nothing about a model."""


def only_describes(config: pytest.Config) -> bool:
    """Whether pytest only prints its help, marks or version."""
    return any(config.getoption(name, default=False) for name in _DESCRIBING)


def only_shows(config: pytest.Config) -> bool:
    """Whether pytest only lists things, such as fixtures, so that nothing is gated."""
    return only_sets_up(config) or any(config.getoption(name, default=False) for name in SHOWING)


def only_sets_up(config: pytest.Config) -> bool:
    """Whether pytest shows the set-up of tests and runs none."""
    return any(config.getoption(name, default=False) for name in _SETTING_UP)


def register_profiles(config: pytest.Config) -> None:
    """Registers our Hypothesis profiles, if one is selected, before Hypothesis looks for it."""
    if str(config.getoption("hypothesis_profile", None)).startswith("vlm-"):
        import pytest_vlmrobust.testing  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares every field of Settings as an option and as an ini value."""
    basic = parser.getgroup("vlmrobust", "vision-language model robustness gate")
    advanced = parser.getgroup("vlmrobust-advanced", "vision-language model robustness gate, advanced")
    for f in fields(Settings):
        group = basic if f.name in BASIC else advanced
        text, argparse = f.metadata["help"], f.metadata["argparse"]
        default = False if argparse.get("action") == "store_true" else None
        group.addoption(f"--{f.name.replace('_', '-')}", dest=f.name, default=default, help=text, **argparse)
        ini_default = list(f.default) if isinstance(f.default, tuple) else f.default
        ini_default = str(ini_default) if isinstance(ini_default, int | float) else ini_default
        parser.addini(
            f.name,
            text.replace("%%", "%"),
            type=f.metadata["ini"],
            default=f.default if f.metadata["ini"] == "bool" else ini_default,
        )
