"""`vlmrobust fill`, with a program in the place of pytest; `tests/plugin/test_submitting.py` runs it with pytest and signals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.commands import filling
from pytest_vlmrobust.core.decision import ENDINGS
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.copying import StoreCopy

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
    hinder = f"part = Path({str(tmp_path / 'part')!r}); part.rmdir(); part.write_text(''); time.sleep(4); part.unlink()"
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
