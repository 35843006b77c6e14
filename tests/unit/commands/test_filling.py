"""`vlmrobust fill`, with a program in the place of pytest; `tests/plugin/test_submitting.py` runs it with pytest and signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.commands import filling
from pytest_vlmrobust.core.decision import ENDINGS
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.merging import StoreCopy

STANDS_IN = """\
#!{python}
import sys, time
from pathlib import Path

sys.path[:0] = {path}
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.store import Store

module, options, store = sys.argv[1:3], sys.argv[3:-2], sys.argv[-1].partition("--vlm-store=")[2]
assert (module, options, sys.argv[-2]) == (["-m", "pytest"], ["--vlm=m", "suite"], "--vlm-fill")
with Store.open(Path(store)) as store:
    new = len(store)
    store.put_many({{f"k{{new}}": Prediction("A", "generate")}}, context={{"model": "m", "dataset": "d", "setting": "clean"}})
{then}
"""


@pytest.fixture(autouse=True)
def _local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "local").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "local"))


def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, *options: str) -> int:
    program = tmp_path / "program"
    program.write_text(STANDS_IN.format(python=sys.executable, path=sys.path, then=then))
    program.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(program))
        return main(["fill", f"--copy-to={tmp_path / 'part'}", *options, "--", "--vlm=m", "suite"])


def count(directory: Path) -> int:
    with Store.open(directory, read_only=True) as store:
        return len(store)


@pytest.mark.process
@pytest.mark.parametrize(("then", "status"), [("", 0), ("sys.exit(11)", 11), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_it_ends_as_pytest_does_and_goes_on(then: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = [signal.getsignal(signal.Signals[name]) for name in ("SIGINT", *ENDINGS)]
    for starts in (1, 2):
        assert fill(tmp_path, monkeypatch, then) == status
        assert count(tmp_path / "part") == starts
    assert not list((tmp_path / "local").iterdir())
    assert handlers == [signal.getsignal(signal.Signals[name]) for name in ("SIGINT", *ENDINGS)]


def test_it_says_how_many_answers_are_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        fill(tmp_path, monkeypatch, "print('pytest')")
    part = tmp_path / "part"
    lines = ["pytest", f"{part}: has 1 answer", f"{part}: goes on from 1 answer", "pytest", f"{part}: has 2 answers"]
    assert capfd.readouterr().out.splitlines() == lines


def test_a_log_that_nobody_reads_any_more_ends_no_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with monkeypatch.context() as patched, os.fdopen(writing, "w") as log:
        patched.setattr(sys, "stdout", log)
        for _ in range(2):
            assert fill(tmp_path, monkeypatch, "") == 0
    assert count(tmp_path / "part") == 2


def test_a_last_copy_that_fails_says_where_the_answers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remove = f"part = Path({str(tmp_path / 'part')!r}); part.rmdir(); part.write_text('')"
    assert fill(tmp_path, monkeypatch, remove) == 4
    (work,) = (tmp_path / "local").iterdir()
    assert (
        f"The last copy failed twice, and the earlier one stays. All answers are in {work / 'store'} on "
        in capsys.readouterr().err
    )
    assert count(work / "store") == 1


def test_a_copy_that_fails_does_not_end_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update, part, tried = StoreCopy.update, tmp_path / "part", tmp_path / "tried"

    def noting(copy: StoreCopy) -> int:
        try:
            return update(copy)
        finally:
            tried.touch()

    monkeypatch.setattr(StoreCopy, "update", noting)
    hinder = f"part, tried = Path({str(part)!r}), Path({str(tried)!r}); part.rmdir(); part.write_text('')\n"
    hinder += "while not tried.exists(): time.sleep(0.02)\npart.unlink()"
    assert fill(tmp_path, monkeypatch, hinder, "--every=1") == 0
    assert "The earlier copy stays, and the next one follows" in capsys.readouterr().out
    assert count(tmp_path / "part") == 1


def test_a_last_copy_that_fails_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update, failures = StoreCopy.update, [StoreError("the disk is full")]

    def failing(copy: StoreCopy) -> int:
        if failures:
            raise failures.pop()
        return update(copy)

    monkeypatch.setattr(StoreCopy, "update", failing)
    monkeypatch.setattr(filling, "_UNTIL_TRIED_AGAIN", 0.0)
    assert fill(tmp_path, monkeypatch, "") == 0
    assert "the disk is full. It is tried once more" in capsys.readouterr().out
    assert count(tmp_path / "part") == 1


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0"])
def test_a_copy_that_cannot_be_read_is_refused_before_anything_is_asked(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/predictions.sqlite").write_bytes(content)
    assert fill(tmp_path, monkeypatch, "raise SystemExit('it was started')") == 4
    said = capsys.readouterr().err
    assert str(tmp_path / "part/predictions.sqlite") in said
    assert "--copy-to" in said
    assert "--vlm-store" not in said
    assert (tmp_path / "part/predictions.sqlite").read_bytes() == content
    assert not list((tmp_path / "local").iterdir())


@pytest.mark.parametrize("option", ["--vlm-store=here", "--vlm-fill"])
def test_options_that_it_gives_itself_are_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", f"--copy-to={tmp_path / 'part'}", "--", option, "suite"]) == 4
    assert f"{option}: vlmrobust fill sets {option.partition('=')[0]} itself. Leave it out" in capsys.readouterr().err
    assert not (tmp_path / "part").exists()


OPTIONS = ("--vlm=scripted:it's a model.yaml", "suite", "-k", "clean or no_image")
SLURM = ("submit", "slurm", "--parts=2", "--shared=/shared/the gate")
KUBERNETES = ("submit", "kubernetes", "--parts=3", "--shared=/shared", "--image=registry/gate:1", "--claim=disk", "--gpus=2")


def written(tmp_path: Path, *arguments: str) -> dict[str, str]:
    assert main([*arguments, "--out", str(tmp_path / "jobs"), "--", *OPTIONS]) == 0
    return {path.name: path.read_text() for path in (tmp_path / "jobs").iterdir()}


def check_shell(text: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_slurm_asks_in_an_array_and_judges_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = written(tmp_path, *SLURM, "--gpus=1")
    assert set(files) == {"fill.sbatch", "judge.sbatch", "submit.sh"}
    for text in files.values():
        check_shell(text, tmp_path)
    fill, judge = files["fill.sbatch"].splitlines(), files["judge.sbatch"]
    assert {"#SBATCH --array=0-1", "#SBATCH --gres=gpu:1", "shared='/shared/the gate'"} <= set(fill)
    options = """'--vlm=scripted:it'"'"'s a model.yaml' suite -k 'clean or no_image'"""
    part = '"$shared/parts/$SLURM_ARRAY_TASK_ID"'
    assert f'exec "$python" -m pytest_vlmrobust.cli fill --copy-to {part} -- {options}' in fill
    assert {"#SBATCH --requeue", "#SBATCH --open-mode=append"} <= set(fill)
    assert f'"$python" -m pytest {options} --vlm-offline --vlm-store="$work/all" --vlm-report="$shared/report"' in judge
    assert "--dependency=" in files["submit.sh"]
    assert "submit.sh" in capsys.readouterr().out


def test_slurm_submits_from_where_it_is_called_within_an_allocation_too(tmp_path: Path) -> None:
    """``salloc`` sets SLURM_SUBMIT_DIR to where it was called itself, which need not be where one is now."""
    written(tmp_path, *SLURM)
    (tmp_path / "bin").mkdir()
    sbatch = tmp_path / "bin/sbatch"
    sbatch.write_text('#!/bin/sh\necho "$PWD $*" >> "$PWD/asked"\necho 7\n')
    sbatch.chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    bash = shutil.which("bash")
    assert bash
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path / "elsewhere")}
    subprocess.run([bash, "jobs/submit.sh"], cwd=tmp_path, env=environment, check=True)
    here, jobs = tmp_path.resolve(), tmp_path.resolve() / "jobs"
    fill, judge = (tmp_path / "asked").read_text().splitlines()
    assert fill == f"{here} --parsable {jobs}/fill.sbatch"
    assert judge == f"{here} --dependency=afterany:7 {jobs}/judge.sbatch"


def test_kubernetes_mounts_at_an_absolute_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*KUBERNETES, "--shared=shared/gate", "--out", str(tmp_path / "jobs"), "--", *OPTIONS]
    assert main(arguments) == 4
    assert (
        "--shared 'shared/gate': kubernetes mounts the volume there. Expected a path that begins with /"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "jobs").exists()


def test_kubernetes_has_an_index_for_each_part(tmp_path: Path) -> None:
    files = written(tmp_path, *KUBERNETES)
    check_shell(files["submit.sh"], tmp_path)
    fill, judge = (yaml.safe_load(files[name]) for name in ("fill.yaml", "judge.yaml"))
    assert (fill["kind"], fill["apiVersion"], fill["spec"]["completionMode"]) == ("Job", "batch/v1", "Indexed")
    assert fill["spec"]["completions"] == 3
    for job in (fill, judge):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert (container["image"], container["volumeMounts"][0]["mountPath"]) == ("registry/gate:1", "/shared")
        check_shell(container["command"][2], tmp_path)
        assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 60, "time for a copy, or two"
        assert job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    (container,) = fill["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "JOB_COMPLETIONS", "value": "3"}]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert "$JOB_COMPLETION_INDEX" in container["command"][2]


@pytest.mark.parametrize(
    ("states", "code", "applied"),
    [
        (
            ["vlmrobust-fill ", "fail", "vlmrobust-fill FailureTarget", "vlmrobust-fill FailureTarget Failed"],
            0,
            ["fill", "judge"],
        ),
        (["vlmrobust-fill SuccessCriteriaMet Complete"], 0, ["fill", "judge"]),
        (["vlmrobust-fill ", ""], 1, ["fill"]),
    ],
)
def test_kubernetes_waits_until_the_parts_are_over_or_deleted(
    states: list[str], code: int, applied: list[str], tmp_path: Path
) -> None:
    written(tmp_path, *KUBERNETES)
    (tmp_path / "bin").mkdir()
    (tmp_path / "states").write_text("".join(f"{state}\n" for state in states))
    programs = {
        "kubectl": 'if [ "$1" = apply ]; then echo "$3" >> applied; exit; fi\n'
        'read -r state < states; sed -i 1d states; [ "$state" != fail ] && echo "$state"',
        "sleep": "exit 0",
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    bash = shutil.which("bash")
    assert bash
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "jobs/submit.sh"], cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert [Path(line).stem for line in (tmp_path / "applied").read_text().splitlines()] == applied
    assert ("The job vlmrobust-fill was deleted: nothing is judged" in done.stderr) == bool(code)
    assert not (tmp_path / "states").read_text()


def test_a_part_may_take_so_many_hours(tmp_path: Path) -> None:
    assert "#SBATCH --time=6:00:00" in written(tmp_path, *SLURM, "--hours=6")["fill.sbatch"]
    fill = yaml.safe_load(written(tmp_path, *KUBERNETES, "--hours=6")["fill.yaml"])
    assert fill["spec"]["activeDeadlineSeconds"] == 6 * 3600
    assert "activeDeadlineSeconds" not in written(tmp_path, *KUBERNETES)["fill.yaml"]
    assert "--time" not in written(tmp_path, *SLURM)["fill.sbatch"]


def test_jobs_of_two_gates_have_names_of_their_own(tmp_path: Path) -> None:
    files = written(tmp_path, *KUBERNETES, "--name=mmbench-weekly")
    assert [yaml.safe_load(files[name])["metadata"]["name"] for name in ("fill.yaml", "judge.yaml")] == [
        "mmbench-weekly-fill",
        "mmbench-weekly-judge",
    ]
    assert "kubectl get job mmbench-weekly-fill " in files["submit.sh"]
    assert "#SBATCH --job-name=mmbench-weekly-judge" in written(tmp_path, *SLURM, "--name=mmbench-weekly")["judge.sbatch"]


@pytest.mark.parametrize("name", ["", "MMBench", "a_b", "7", "a-", "a" * 51])
def test_a_name_that_kubernetes_refuses_is_refused_here(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SLURM, f"--name={name}", "--out", str(tmp_path / "jobs"), "--", *OPTIONS]) == 2
    assert "is not a name of jobs. Expected up to 50 small letters" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "Disk", "a_b", "-a", "a-", "a..b", "a b", "a\nb", "a" * 254])
def test_a_claim_that_kubernetes_refuses_is_refused_here(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*KUBERNETES, f"--claim={name}", "--out", str(tmp_path / "jobs"), "--", *OPTIONS]) == 2
    assert "is not a name of a volume claim" in capsys.readouterr().err
    assert not (tmp_path / "jobs").exists()


def test_files_are_not_written_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs").write_text("mine")
    assert main([*SLURM, "--out", str(tmp_path / "jobs"), "--", *OPTIONS]) == 4
    assert "/jobs' is a file. Expected a directory for fill.sbatch, judge.sbatch, submit.sh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SLURM, "--out=x", "--", "--vlm-store=here"), "--vlm-store=here: the job files say --vlm-store, "),
        ((*SLURM, "--out=x", "--", "--vlm=tiny", "--vlm-plan"), "--vlm-plan: with it pytest asks no question and judges nothing"),
        ((*KUBERNETES, "--out=x", "--", "--collect-only"), "--collect-only: with it pytest asks no question"),
        ((*SLURM, "--out=x", "--image=i", "--", "suite"), "--image is about kubernetes. Leave it out"),
        ((*KUBERNETES[:4], "--out=x", "--", "suite"), "submit kubernetes needs --image and --claim: "),
        ((*KUBERNETES, "--out=x", "--", "-k", "a\u2028b"), "'a\\u2028b': has a character that is not written into a job file"),
        ((*SLURM, "--shared=a\nb", "--out=x", "--", "suite"), "'a\\nb': has a character that is not written into a job file"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = list(tmp_path.iterdir())
    assert main(arguments) == 4
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == before
