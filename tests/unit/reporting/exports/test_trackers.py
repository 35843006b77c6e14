from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import MissingExtra, UnknownName, UsageError
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.reporting.exports.trackers import FILES, _model_runs, write_mlflow, write_wandb
from pytest_vlmrobust.reporting.files import read_run

from .conftest import HOSTILE, RESERVED, cell, drop, keep


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where libraries may leave whatever they leave."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def store() -> str:
    """The store of a test; MLflow keeps connections by this name."""
    return f"sqlite:///{Path.cwd() / 'm.db'}"


def test_a_go_with_waivers_for_a_check_is_called_so(reserved: Path) -> None:
    (part,) = _model_runs(read_run(reserved), "")
    assert [part.word, part.tags["vlm.decision"], part.tags["vlm.decision_of_run"]] == [RESERVED] * 3


def test_a_library_that_is_absent_is_named_with_its_pip_line(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_run(run_directory)
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install .*'mlflow-skinny>="):
        write_mlflow(run, uri="", experiment="e")
    with pytest.raises(MissingExtra, match=r"pip install 'wandb>="):
        write_wandb(run, run_directory, project="p")


@pytest.mark.filterwarnings("ignore")
class TestMlflow:
    @pytest.fixture(autouse=True)
    def library(self, here: Path) -> None:
        pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
        pytest.importorskip("sqlalchemy", reason="the extra mlflow is not installed")

    def read(self, run_directory: Path, **changes: Any) -> Any:
        """Returns the only run of a store, as MLflow reads it, after an export."""
        from mlflow import MlflowClient

        ((_, where),) = write_mlflow(read_run(run_directory), uri=store(), experiment="e", **changes)
        client = MlflowClient(store())
        place = client.get_experiment_by_name("e")
        assert place is not None
        (tracked,) = client.search_runs([place.experiment_id])
        assert where.endswith(tracked.info.run_id)
        return tracked

    def test_what_mlflow_reads_is_what_the_run_measured_and_is_there_once(self, run_directory: Path) -> None:
        """What is undefined has no number, a step is the severity, texts are printable, and the report is there."""
        from mlflow import MlflowClient

        tracked, client = self.read(run_directory), MlflowClient(store())
        metrics, params = tracked.data.metrics, tracked.data.params
        assert metrics["d/accuracy_drop/fog:mid"] == 0.3
        assert metrics["d/accuracy_drop.low/fog:mid"] == pytest.approx(0.2)
        assert metrics["d/mean_drop/all"] == 0.1
        assert not [name for name in metrics if "relative_corruption_error" in name]
        assert not [name for name in metrics if "resolution:448" in name and not name.startswith("d/n")]
        assert all(map(math.isfinite, metrics.values()))
        assert (params["option.vlm_dataset"], params["dataset.d"]) == ("a, b", "digest")
        assert params["model.location"].isprintable()
        assert "\\x1b[2J" in params["model.location"]
        tags = {name: tracked.data.tags[f"vlm.{name}"] for name in ("run", "decision", "commit", "tests", "undefined")}
        assert tags == {"run": run_directory.name, "decision": "NO-GO", "commit": "abc", "tests": "7 of 8", "undefined": "2"}
        assert tracked.info.status == "FINISHED"
        for setting, step in (("clean", 0), ("fog:low", 1), ("fog:high", 3), ("resolution:448", 448)):
            (point,) = client.get_metric_history(tracked.info.run_id, f"d/n/{setting}")
            assert point.step == step
        assert {each.path for each in client.list_artifacts(tracked.info.run_id)} == {*FILES}
        local = client.download_artifacts(tracked.info.run_id, "results.json", str(Path.cwd()))
        assert json.loads(Path(local).read_text())["decision"] == "NO-GO"
        with pytest.raises(UsageError, match=r"abcd-m is in experiment 'e' already, as run .*: delete it there, or name another"):
            self.read(run_directory)

    def test_an_incomplete_run_failed(self, tmp_path: Path) -> None:
        lost = ("suites/t.py::test_cell[m-d-fog:mid]",)
        tracked = self.read(keep(tmp_path / "r", [cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0))], lost=lost))
        assert (tracked.info.status, tracked.data.tags["vlm.decision"]) == ("FAILED", "INCOMPLETE")

    def test_what_fails_half_way_leaves_nothing(self, run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from mlflow import MlflowClient

        def fail(*_: object) -> None:
            raise OSError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(MlflowClient, "log_artifact", fail)
            with pytest.raises(OSError, match="full"):
                self.read(run_directory)
        assert self.read(run_directory).info.status == "FINISHED"

    def test_a_store_of_files_works(self, run_directory: Path, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        ((_, where),) = write_mlflow(read_run(run_directory), uri=str(here / "files"), experiment="e")
        (metric,) = (here / "files").rglob(f"{where.rpartition(' ')[2]}/metrics/d/accuracy_drop/fog:mid")
        assert metric.read_text().split()[1:] == ["0.3", "2"]

    def test_what_mlflow_refuses_is_one_line(self, run_directory: Path) -> None:
        with pytest.raises(UsageError, match="MLflow refused 'nosuch://x'"):
            write_mlflow(read_run(run_directory), uri="nosuch://x", experiment="e")

    def test_each_model_is_a_run(self, tmp_path: Path) -> None:
        both = [cell("fog:low", Outcome.FAIL, drop(Outcome.FAIL)), cell("fog:low", Outcome.PASS, drop(Outcome.PASS), model="n")]
        run = read_run(keep(tmp_path / "r", both, models={"m": {}, "n": {}}))
        written = write_mlflow(run, uri=store(), experiment="e")
        assert [(each.model, str(each.decision)) for each, _ in written] == [("m", "NO-GO"), ("n", "GO")]
        with pytest.raises(UnknownName, match="unknown model 'k'"):
            write_mlflow(run, uri=store(), experiment="f", model="k")


def chunks(content: bytes) -> Iterator[bytes]:
    """Yields the records of a transaction log of wandb, which is one of LevelDB behind a header of 7 bytes."""
    place, whole, block = 7, b"", 32768
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # the whole of a record, or its last part
            yield whole
            whole = b""


@pytest.mark.filterwarnings("ignore")
class TestWandb:
    @pytest.fixture(autouse=True)
    def library(self, here: Path) -> None:
        pytest.importorskip("wandb", reason="the extra wandb is not installed")

    def read(self, run_directory: Path, out: Path) -> tuple[Path, dict[str, Any], Any]:
        """Returns the files of an offline run, its summary as its own reader reads it, and how it ended."""
        from wandb.proto.wandb_internal_pb2 import Record as Line

        ((_, where),) = write_wandb(read_run(run_directory), out, project="p")
        (log,) = Path(where).glob("*.wandb")
        lines: list[Any] = []
        deadline = time.monotonic() + 60  # the process that writes the log may still be at it
        while not any(line.WhichOneof("record_type") == "exit" for line in lines) and time.monotonic() < deadline:
            time.sleep(0.05)
            lines = [Line.FromString(data) for data in chunks(log.read_bytes())]
        updates = [item for line in lines for item in line.summary.update]
        summary = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in updates}
        (end,) = [line.exit for line in lines if line.WhichOneof("record_type") == "exit"]
        return Path(where) / "files", summary, end

    def test_an_offline_run_has_numbers_the_report_and_a_table_of_each_measure(self, run_directory: Path, here: Path) -> None:
        files, summary, end = self.read(run_directory, here / "out")
        assert summary["d/accuracy_drop/fog:mid"] == 0.3
        assert summary["decision"] == "NO-GO"
        assert not [name for name in summary if "relative_corruption_error" in name]
        assert {path.name for path in files.iterdir() if path.is_file()} >= {*FILES}
        assert not (files / "requirements.txt").exists(), "what else is installed is nobody's business"
        assert end.exit_code == 0
        (path,) = (files / "media" / "table").glob("measures*.json")
        table = json.loads(path.read_text())
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
        undefined = [row for row in rows if row["metric"] == "relative_corruption_error"]
        assert [(row["setting"], row["value"]) for row in undefined] == [("fog:mid", None), ("flip_v", None)]
        assert {row["outcome"] for row in rows} >= {"PASS", "FAIL", "WAIVED", "INCONCLUSIVE"}

    def test_an_incomplete_run_failed(self, tmp_path: Path, here: Path) -> None:
        lost = ("suites/t.py::test_cell[m-d-fog:mid]",)
        run = keep(tmp_path / "r", [cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0))], lost=lost)
        _, summary, end = self.read(run, here / "out")
        assert (summary["decision"], end.exit_code) == ("INCOMPLETE", 11)

    def test_hostile_names_are_printable(self, tmp_path: Path, here: Path) -> None:
        odd = cell("fog:low", Outcome.PASS, drop(Outcome.PASS), Measure(f"x{HOSTILE}", 0.5))
        _, summary, _ = self.read(keep(tmp_path / "r", [odd]), here / "out")
        assert all(name.isprintable() for name in summary)
        assert os.environ["WANDB_ERROR_REPORTING"] == "false"
