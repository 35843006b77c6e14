"""The same checkpoint, pictures and prompts through lmms-eval and VLMEvalKit: same answers, then how fast and how robust.

    python studies/answers/harnesses.py --lmms-eval lmms/bin/python --vlmevalkit vlmeval/bin/python
    python studies/answers/harnesses.py ... --samples 20 --rounds 1        # fewer questions
    python studies/answers/harnesses.py ... --threads 1                    # one thread of torch in each program

Each peer runs in an environment of its own, whose Python is named, by a driver (``harness_lmms_eval.py``,
``harness_vlmevalkit.py``) that calls the peer's own command. Peers perturb nothing, so they find the pictures of all settings as
files, made before the clock runs. The gate starts with an empty store, and makes its pictures while the clock runs. All answer
with one greedy token, in float32, on all cores or with ``--threads``, which sets ``OMP_NUM_THREADS``: two threads that compute
one batch wait for each other at every step, and long where other programs use the cores. The gate sets
``OMP_WAIT_POLICY=PASSIVE`` for itself; here all get it.

The environments hold ``lmms_eval==0.7.3`` and ``ms-vlmeval==0.0.20``, installed with ``--no-deps``, torch and transformers as in
``constraints.txt`` of this project, no torchvision, and what importing asks for; lmms_eval needs ``filelock<4``, and
pytablewriter at its end.

Where answers to clean pictures differ, the program ends with 1 and reports no times. Runs take turns; of each program the fastest
by the clock is reported, by the clock and by the processor: its start, up to its first call of the model, and all that follows,
for each question of the sweep. Adaptive mode is measured by the questions of the sweep as well, of which it asks a part.
At last each program is ended with SIGKILL once it was asked half of the questions, and started again with the same folders:
what is asked beyond the questions of an undisturbed run is work that was repeated. The program ends with 1 where the full gate is
less than five times as fast as the better peer for each question, by the processor, the start left out. Adaptive mode is held
against the same goal for comparison alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from pytest_vlmrobust.backends import BackendOptions, open_backend, resolve
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.datasets import resolve as dataset
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.evaluation.run.prompts import prompt
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.store import Store

HERE = Path(__file__).parent
DATASETS = ("shapes", "words")
NAMES = (
    "gaussian_blur",
    "motion_blur",
    "glass_blur",
    "gaussian_noise",
    "shot_noise",
    "fog",
    "snow",
    "jpeg_compression",
    "pixelate",
    "rotate",
    "perspective_transform",
    "elastic_transform",
    "brightness",
    "contrast",
    "saturation",
    "hue_shift",
    "random_occlusion",
    "downsample",
    "posterize",
    "text_overlay",
)
SETTINGS = ("clean", *(f"{name}:mid" for name in NAMES))
GOAL = 5.0
SUITE = f"""
import pytest
from harness_shared import log_asking

log_asking()


@pytest.mark.vlm_settings(*{SETTINGS!r})
def test_cell(vlm_cell):
    vlm_cell.check()
"""

Answers = Mapping[tuple[str, str], str]
"""The answer to each question, by setting and id."""


@dataclass(frozen=True)
class Asked:
    """What one run of a program asked."""

    questions: int
    clock: float
    """Seconds from the start of the process to its end."""
    processor: float
    """CPU seconds of the process and those that it started."""
    start: float
    """Seconds from the start of the process to its first call of the model."""
    start_processor: float
    """CPU seconds until then."""

    def each(self, questions: int) -> tuple[float, float]:
        """Returns how long each of so many questions took after the start, in seconds by the clock and of the processor."""
        return (self.clock - self.start) / questions, (self.processor - self.start_processor) / questions


@dataclass
class Program:
    """One way to ask all questions.

    Attributes:
        name: what the tables call it.
        command: from a folder for its files, and whether it is to go on where a killed run stopped, to a command line.
        answers: from that folder to the answers, once it has ended; None where it does not ask every question.
        statuses: exit statuses of a run that asked everything; a gate also has some for what it found.
        threads: what ``OMP_NUM_THREADS`` is set to; not set where empty.
        runs: those that were timed.
    """

    name: str
    command: Callable[[Path, bool], list[str]]
    answers: Callable[[Path], Answers] | None
    statuses: frozenset[int] = frozenset({0})
    threads: str = ""
    runs: list[Asked] = field(default_factory=list)

    @property
    def slug(self) -> str:
        """Its name, as that of a folder."""
        return self.name.replace(",", "").replace(" ", "-")

    def run(self, folder: Path, *, resumes: bool = False, kill_after: int = 0) -> Asked:
        """Runs it, up to the end or until it was asked so many questions.

        Args:
            folder: for its files; not empty where a killed run left some.
            resumes: whether it does what it can to lose little when it is killed.
            kill_after: how many questions it may be asked; 0 for all.

        Raises:
            RuntimeError: it ended in a way that it should not.
        """
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "asked.log"
        log.write_text("", encoding="ascii")
        left_out = {"OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"}  # without files of bytecode, each run would compile again
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment |= {"OMP_NUM_THREADS": self.threads} if self.threads else {}
        environment |= {
            "HARNESS_LOG": str(log),
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_OFFLINE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parents[1]))) if self.name.startswith("gate") else str(HERE),
        }
        with (folder / "output.txt").open("w", encoding="utf-8") as output:
            began, clock = time.time(), time.perf_counter()
            process = subprocess.Popen(  # noqa: S603 - the commands below
                self.command(folder, resumes), cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            while kill_after and process.poll() is None and questions_in(lines(log)) < kill_after:
                time.sleep(0.05)
            if kill_after:
                os.killpg(process.pid, signal.SIGKILL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        logged = lines(log)
        if process.returncode not in ({-signal.SIGKILL} if kill_after else self.statuses) or not logged:
            end = (folder / "output.txt").read_text(encoding="utf-8")[-4000:]
            raise RuntimeError(f"{self.name} ended with {process.returncode} and {len(logged)} lines in {log}:\n{end}")
        first = logged[0]
        return Asked(
            questions=questions_in(logged),
            clock=time.perf_counter() - clock,
            processor=used.ru_utime + used.ru_stime,
            start=first.when - began,
            start_processor=first.processor,
        )


class Line(NamedTuple):
    """What a program wrote down about a call of its model."""

    what: str
    """``asked`` or ``answered``."""
    when: float
    """By the clock."""
    processor: float
    """CPU seconds of the process until then."""
    rows: int
    """How many questions it was about."""


def questions_in(logged: Sequence[Line]) -> int:
    """Returns how many questions were asked, by the lines of a log."""
    return sum(line.rows for line in logged if line.what == "asked")


def lines(log: Path) -> list[Line]:
    """Returns what was written down; a last line that is not whole yet is left out."""
    rows = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
    return [Line(line[0], float(line[1]), float(line[2]), int(line[3])) for line in rows if len(line) == 4]


def file_name(setting: str) -> str:
    """Returns the name of a setting that any program takes for a task."""
    return "sweep_" + setting.replace(":", "_")


def write_questions(folder: Path, samples: str | None) -> int:
    """Writes pictures and questions of all settings, as both peers read them; returns how many questions there are."""
    views, number = ViewMaker(EvaluationOptions().seed), 0
    chosen = evaluator(None, samples)
    for setting in SETTINGS:
        shown = folder / "pictures" / file_name(setting)
        shown.mkdir(parents=True)
        rows = []
        for name in DATASETS:
            for sample in chosen.samples(name):
                [picture] = views.view(sample, Setting.parse(setting)).images
                file = shown / f"{number}.png"
                Image.fromarray(picture).save(file)
                about = {"index": number, "id": f"{name}/{sample.id}", "picture": str(file)}
                rows.append({**about, "prompt": prompt(sample, "direct"), "target": str(sample.target)})
                number += 1
        with (folder / f"{file_name(setting)}.jsonl").open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        with (folder / f"{file_name(setting)}.tsv").open("w", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream, delimiter="\t", lineterminator="\n")
            table.writerow(["index", "id", "image_path", "question", "answer"])
            table.writerows([row[name] for name in ("index", "id", "picture", "prompt", "target")] for row in rows)
    return number


def evaluator(store: Store | None, samples: str | None) -> Evaluator:
    """Returns an evaluator of the questions; one without a store tells samples only."""
    return Evaluator(
        models={"tiny": resolve("tiny")},
        datasets={name: lambda name=name: dataset(name) for name in DATASETS},  # type: ignore[misc]
        open_backend=lambda ref: open_backend(ref, BackendOptions()),
        store=store,  # type: ignore[arg-type]
        options=EvaluationOptions(sample=samples, offline=True),
    )


# The programs, and where each leaves its answers.


def gate(mode: str, samples: str | None) -> Program:
    """Returns this package's own way, which always goes on with what its store has."""

    def command(folder: Path, _resumes: bool) -> list[str]:
        (folder / "test_sweep.py").write_text(SUITE, encoding="utf-8")
        given = ["--vlm=tiny", f"--vlm-mode={mode}", "--vlm-store=store", *(f"--vlm-dataset={name}" for name in DATASETS)]
        given += [f"--vlm-sample={samples}"] if samples else []
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given, "test_sweep.py"]

    def answers(folder: Path) -> Answers:
        answers = {}
        with Store.open(folder / "store") as store:
            asker = evaluator(store, samples)
            for setting in SETTINGS:
                for name in DATASETS:
                    result = asker.result(Cell("tiny", name, Setting.parse(setting)))
                    for sample, prediction in zip(result.samples, result.predictions, strict=True):
                        answers[setting, f"{name}/{sample.id}"] = prediction.text.strip()
            asker.close()
        return answers

    return Program(f"gate, {mode}", command, answers if mode == "full" else None, frozenset({0, 1, 10}))


def lmms_eval(python: str, questions: Path, batch_size: int) -> Program:
    """Returns lmms-eval with so many questions at a time; it has its cache of responses only where it is to go on."""

    def command(folder: Path, resumes: bool) -> list[str]:
        arguments = [str(folder / "output"), str(batch_size), *([str(folder / "cache")] if resumes else [])]
        return [python, str(HERE / "harness_lmms_eval.py"), resolve("tiny").location, str(questions), *arguments]

    def answers(folder: Path) -> Answers:
        answers = {}
        for setting in SETTINGS:
            [file] = (folder / "output").rglob(f"*_samples_{file_name(setting)}.jsonl")
            for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                answers[setting, ids(questions, setting)[row["doc_id"]]] = row["filtered_resps"].strip()
        return answers

    return Program(f"lmms-eval, batches of {batch_size}", command, answers)


def vlmevalkit(python: str, questions: Path) -> Program:
    """Returns VLMEvalKit, which asks one question at a time and always goes on with its files of answers."""

    def command(folder: Path, _resumes: bool) -> list[str]:
        return [python, str(HERE / "harness_vlmevalkit.py"), resolve("tiny").location, str(questions), str(folder / "output")]

    def answers(folder: Path) -> Answers:
        answers = {}
        for setting in SETTINGS:
            [file] = (folder / "output").rglob(f"tiny_{file_name(setting)}.tsv")
            with file.open(encoding="utf-8", newline="") as rows:
                for row in csv.DictReader(rows, delimiter="\t"):
                    answers[setting, row["id"]] = row["prediction"].strip()
        return answers

    return Program("VLMEvalKit", command, answers)


def ids(questions: Path, setting: str) -> list[str]:
    """Returns the ids of the questions of a setting, in order."""
    rows = (questions / f"{file_name(setting)}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["id"] for row in rows]


# Measurements.


def same_when_clean(programs: Sequence[Program], by_program: Mapping[str, Answers]) -> bool:
    """Prints whether all gave the same answers to clean pictures, and how many others differ; returns the first."""
    reference = by_program[programs[0].name]
    same = True
    for name, answers in by_program.items():
        if answers.keys() != reference.keys():
            raise RuntimeError(f"{name} answered {len(answers)} questions; expected the {len(reference)} of {programs[0].name}")
        differing = [setting for setting, each in reference if answers[setting, each] != reference[setting, each]]
        clean = differing.count("clean")
        same &= clean == 0
        print(f"{name}: {clean} answers differ on clean pictures, {len(differing)} of {len(reference)} in all", flush=True)
    return same


def print_speed(programs: Sequence[Program], questions: int) -> float:
    """Prints the fastest run of each program; returns how many times as fast as the better peer the full gate takes a question.

    That is by the processor, the start left out.
    """
    fastest = {program.name: min(program.runs, key=lambda run: run.clock) for program in programs}
    print("\n| | start: clock | CPU | then a question: clock | CPU | questions/s | whole: clock | CPU | asked |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, run in fastest.items():
        clock, processor = run.each(questions)
        starts = f"{run.start:.1f} s | {run.start_processor:.1f} s"
        then = f"{1000 * clock:.2f} ms | {1000 * processor:.2f} ms | {1 / clock:.0f}"
        print(f"| {name} | {starts} | {then} | {run.clock:.1f} s | {run.processor:.1f} s | {run.questions:,} |", flush=True)
    peers = [run for name, run in fastest.items() if not name.startswith("gate")]
    print()
    ratios = {}
    for name in ("gate, full", "gate, adaptive"):
        gate = fastest[name]
        whole = min(peer.processor for peer in peers) / gate.processor
        clock, ratios[name] = (min(peer.each(questions)[by] for peer in peers) / gate.each(questions)[by] for by in (0, 1))
        times = f"a question {ratios[name]:.2f} times by the processor and {clock:.2f} by the clock, the whole run {whole:.2f}"
        print(f"{name}, as fast as the better peer: {times}", flush=True)
    return ratios["gate, full"]


def print_repeated(programs: Sequence[Program], folder: Path) -> None:
    """Ends each program half-way and starts it again; prints how many questions were asked twice."""
    print("\n| | asked before SIGKILL | asked after | asked twice |\n|---|--:|--:|--:|")
    for program in programs:
        place = folder / f"killed-{program.slug}"
        undisturbed = program.runs[-1].questions
        before = program.run(place, resumes=True, kill_after=undisturbed // 2).questions
        after = program.run(place, resumes=True).questions
        print(f"| {program.name} | {before:,} | {after:,} | {before + after - undisturbed:,} |", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints what was found.

    Returns:
        The exit status: 1 where answers to clean pictures differ or the goal is missed, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lmms-eval", default="", metavar="PYTHON", help="of the environment that has lmms-eval")
    parser.add_argument("--vlmevalkit", default="", metavar="PYTHON", help="of the environment that has VLMEvalKit")
    parser.add_argument("--samples", default=None, help="of each of the two datasets (default: all, 200 together)")
    parser.add_argument(
        "--batch-sizes", default="1,16", help="of lmms-eval, whose default is 1; the gate has its own default, 16"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--threads", default="", metavar="N", help="of torch in each program (default: what each takes by itself)"
    )
    parser.add_argument("--folder", default="", help="where files stay (default: a temporary folder)")
    options = parser.parse_args(arguments)
    if not (options.lmms_eval or options.vlmevalkit):
        parser.error("name the Python of a peer: --lmms-eval, --vlmevalkit, or both")
    with tempfile.TemporaryDirectory() as temporary:
        return _measure(Path(options.folder or temporary).resolve(), options)


def _measure(folder: Path, options: argparse.Namespace) -> int:
    questions = folder / "questions"
    total = write_questions(questions, options.samples)
    print(f"{total} questions: {total // len(SETTINGS)} in each of {len(SETTINGS)} settings, clean among them", flush=True)
    sizes = [int(size) for size in options.batch_sizes.split(",")] if options.lmms_eval else []
    peers = [lmms_eval(options.lmms_eval, questions, size) for size in sizes]
    peers += [vlmevalkit(options.vlmevalkit, questions)] if options.vlmevalkit else []
    full, adaptive = gate("full", options.samples), gate("adaptive", options.samples)
    for program in (full, adaptive, *peers):
        program.threads = options.threads
    for turn in range(options.rounds):
        by_program: dict[str, Answers] = {}
        for program in (full, *peers, adaptive):
            place = folder / f"{turn}-{program.slug}"
            shutil.rmtree(place, ignore_errors=True)
            run = program.run(place)
            program.runs.append(run)
            print(f"{program.name}: {run.clock:.1f} s by the clock, {run.processor:.1f} s of the processor", flush=True)
            if program.answers is not None:
                by_program[program.name] = program.answers(place)
        if not same_when_clean([full, *peers], by_program):
            print("FAIL  answers to clean pictures differ, so that times say nothing")
            return 1
    ratio = print_speed([full, adaptive, *peers], total)
    print_repeated([full, *peers[-2:]], folder)  # what lmms-eval keeps does not depend on its batches
    verdict = "PASS" if ratio >= GOAL else "FAIL"
    print(
        f"\n{verdict}  the full gate takes a question {ratio:.2f} times as fast as the better peer (expected: at least {GOAL:g})"
    )
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
