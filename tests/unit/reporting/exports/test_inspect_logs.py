from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import MissingExtra, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.reporting.exports.inspect_logs import FORMATS, _metadata, write_inspect
from pytest_vlmrobust.reporting.files import read_run
from pytest_vlmrobust.store import Answer, Evidence, StoredCell

from .conftest import RESERVED, SETTINGS, cell, drop, keep


def test_a_go_with_waivers_for_a_check_is_called_so(reserved: Path) -> None:
    assert _metadata(Cell("m", "d", Setting.parse("fog:low")), None, read_run(reserved))["decision_of_run"] == RESERVED


def test_a_library_that_is_absent_is_named_with_its_pip_line(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(MissingExtra, match=r"pip install 'inspect-ai>="):
        write_inspect(read_run(run_directory), run_directory / "out")


@pytest.mark.filterwarnings("ignore")
class TestLogs:
    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")

    def read(self, run: Path, out: Path, form: str = "eval") -> dict[str, Any]:
        """Returns each log by its task, as Inspect reads it."""
        from inspect_ai.log import list_eval_logs, read_eval_log

        write_inspect(read_run(run), out, form=form)
        logs = [read_eval_log(info.name) for info in list_eval_logs(str(out))]
        return {log.eval.task: log for log in logs}

    @pytest.mark.parametrize("form", FORMATS)
    def test_inspect_reads_back_what_was_measured(self, run_directory: Path, tmp_path: Path, form: str) -> None:
        logs = self.read(run_directory, tmp_path / "out", form)
        assert logs.keys() == {f"d-{setting}" for setting in SETTINGS}
        fog = logs["d-fog:mid"]
        assert (fog.status, fog.eval.model, fog.eval.dataset.name) == ("success", "m", "d")
        assert fog.eval.metadata["verdict"] == "FAIL"
        assert fog.eval.tags == ["NO-GO"]
        (score,) = fog.results.scores
        assert {name: metric.value for name, metric in score.metrics.items()} == {"mean": 2 / 3, "accuracy_drop": 0.3}
        assert score.metrics["accuracy_drop"].metadata["verdict"] == "FAIL"
        first, second, _ = fog.samples
        assert (first.id, first.choices, first.target, first.metadata["category"]) == ("a", ["dog", "cat"], "B", "k")
        assert (first.scores["vlmrobust"].value, first.scores["vlmrobust"].answer) == (1.0, "B")
        assert (second.scores["vlmrobust"].value, second.scores["vlmrobust"].metadata) == (0.0, {"state": "unparsed"})

    def test_a_failed_inference_has_an_error_and_counts_in_no_metric(self, run_directory: Path, tmp_path: Path) -> None:
        log = self.read(run_directory, tmp_path / "out")["d-flip_v"]
        failed = log.samples[2]
        assert failed.error.message == "down"
        assert math.isnan(failed.scores["vlmrobust"].value)
        (score,) = log.results.scores
        assert (score.scored_samples, score.unscored_samples) == (2, 1)
        assert score.metrics["mean"].value == 0.5
        assert "relative_corruption_error" not in score.metrics
        assert log.results.completed_samples == 2

    def test_a_test_that_ended_in_an_error_is_a_log_with_one(self, run_directory: Path, tmp_path: Path) -> None:
        log = self.read(run_directory, tmp_path / "out")["d-resolution:448"]
        assert (log.status, log.error.message) == ("error", "the endpoint is down")
        assert not log.samples
        assert log.results.scores[0].metrics == {}

    def test_a_test_that_left_no_verdict_was_cancelled(self, tmp_path: Path) -> None:
        lost = ("suites/t.py::test_cell[m-d-fog:mid]",)
        logs = self.read(keep(tmp_path / "r", [cell("fog:low", Outcome.PASS, drop(Outcome.PASS))], lost=lost), tmp_path / "out")
        assert logs["d-fog:mid"].status == "cancelled"
        assert logs["d-fog:low"].status == "success"
        assert logs["d-clean"].eval.metadata["reason"] == "no test was about this cell alone"
        assert {log.eval.metadata["decision_of_run"] for log in logs.values()} == {"INCOMPLETE"}

    def test_views_are_epochs_of_which_the_best_counts(self, tmp_path: Path) -> None:
        run = keep(tmp_path / "r", [cell("patches:2", Outcome.MEASURED)])
        right, wrong = Score(1.0, "letter", "B"), Score(0.0, "letter", "A")
        unasked = Score(math.nan, "not asked", None, "unasked")
        scores = [wrong, right, unasked, unasked, *[wrong] * 4, wrong, wrong, right, right]
        with Evidence.open(run) as evidence:
            answers = tuple(Answer("k", Prediction("x", "generate"), score) for score in scores)
            evidence.put_cells([StoredCell(Cell("m", "d", Setting.parse("patches:2")), 4, answers)])
        log = self.read(run, tmp_path / "out")["d-patches:2"]
        epochs = {name: [sample.epoch for sample in log.samples if sample.id == name] for name in "abc"}
        assert epochs == {"a": [1, 2], "b": [1, 2, 3, 4], "c": [1, 2, 3, 4]}
        assert log.results.scores[0].metrics["mean"].value == 2 / 3
        assert (log.eval.config.epochs, log.eval.config.epochs_reducer) == (4, ["max"])

    def test_whatever_a_model_says_is_text_that_can_be_stored(self, run_directory: Path, tmp_path: Path) -> None:
        sample = self.read(run_directory, tmp_path / "out")["d-clean"].samples[0]
        assert "\\ud83d" in sample.output.completion
        assert sample.output.completion.encode()

    def test_a_directory_that_exists_and_a_model_that_does_not_are_refused(self, run_directory: Path, tmp_path: Path) -> None:
        run = read_run(run_directory)
        with pytest.raises(UsageError, match="exists: logs of two runs would be mixed up"):
            write_inspect(run, tmp_path)
        with pytest.raises(UnknownName, match="unknown model 'k'"):
            write_inspect(run, tmp_path / "out", model="k")
        assert not (tmp_path / "out").exists()

    def test_a_run_without_a_cell_has_nothing_to_export(self, tmp_path: Path) -> None:
        run = keep(tmp_path / "r", [])
        (run / "predictions.sqlite").unlink()
        Evidence.open(run).close()
        with pytest.raises(UsageError, match="measured nothing that could be exported"):
            write_inspect(read_run(run), tmp_path / "out")
