"""What nel is given: the same problem has the same number in every run, and what is missing is not there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.boxes import Localisation
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.reporting.exports import nel
from pytest_vlmrobust.reporting.exports.nel import Benchmark, problem_number, write_nel
from pytest_vlmrobust.store import Answer, Evidence, StoredCell
from pytest_vlmrobust.store.questions import changes_to_json

RIGHT = Score(1.0, "letter", "B")
WRONG = Score(0.0, "letter", "A")
FAILED = Score.unscored("the endpoint is down")
UNASKED = Score(math.nan, "not asked", None, "unasked")


def sample(name: str, **changes: Any) -> Sample:
    facts: dict[str, Any] = {"category": "cats", "group": "image 1", **changes}
    return replace(Sample(name, (), "Which?", "B", "choice", {"A": "dog", "B": "cat"}), **facts)


def put(
    run: Path,
    samples: Sequence[Sample],
    cells: Mapping[str, Sequence[Score]],
    *,
    model: str = "m",
    text: str = "it says so",
    metric: str = "accuracy",
) -> Path:
    """Adds cells to a run: setting to the scores of all views in a row."""
    with Evidence.open(run) as evidence:
        evidence.put_samples("d", "digest", samples, metric)
        for setting, scores in cells.items():
            answers = tuple(Answer("k", Prediction(text, "generate"), score) for score in scores)
            evidence.put_cells([StoredCell(Cell(model, "d", Setting.parse(setting)), len(scores) // len(samples), answers)])
    return run


def lines(folder: Path) -> list[dict[str, Any]]:
    """Reads results as nel does."""
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def whole(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("eval-*.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def rewards(run: Path, out: Path, setting: str) -> dict[str, float]:
    write_nel(run, out)
    return {line["scoring_details"]["sample"]: line["reward"] for line in lines(out / f"d-{setting.replace(':', '=')}")}


def exported(directory: Path, samples: Sequence[Sample], scores: Sequence[Score], **about: Any) -> Path:
    """Writes a run with these clean answers and what nel is given of it; returns the folder of the benchmark."""
    write_nel(put(directory / "r", samples, {"clean": scores}, **about), directory / "out")
    return directory / "out" / "d-clean"


def test_a_line_says_everything_about_a_sample(tmp_path: Path) -> None:
    run = put(tmp_path / "r1", [sample("q")], {"fog:mid": [RIGHT]})
    assert write_nel(run, tmp_path / "out") == (Benchmark("d-fog:mid", "d", 1, 0, "accuracy"),)
    (line,) = lines(tmp_path / "out" / "d-fog=mid")
    assert line == {
        "problem_idx": problem_number(sample("q")),
        "repeat": 0,
        "reward": 1.0,
        "expected_answer": "B",
        "model_response": "it says so",
        "extracted_answer": "B",
        "metadata": {"category": "cats", "group": "image 1"},
        "scoring_details": {"sample": "q", "state": "scored", "rule": "letter"},
    }


def test_a_changed_question_is_the_same_problem_with_the_target_that_was_asked_for(tmp_path: Path) -> None:
    samples = [sample("a"), sample("b")]
    run = put(tmp_path / "r1", samples, {"clean": [RIGHT, RIGHT]})
    changes = changes_to_json(samples[1], replace(samples[1], target="A", options={"A": "cat", "B": "dog"}))
    answer = Answer("k", Prediction("A", "generate"), Score(1.0, "letter", "A"))
    with Evidence.open(run) as evidence:
        evidence.put_cells(
            [StoredCell(Cell("m", "d", Setting.parse("option_order:1")), 1, (answer,), places=(1,), questions={1: changes})]
        )
    write_nel(run, tmp_path / "out")
    (line,) = lines(tmp_path / "out" / "d-option_order=1")
    assert (line["problem_idx"], line["expected_answer"]) == (problem_number(samples[1]), "A")


def test_a_benchmark_has_the_mean_and_a_name_without_the_model(tmp_path: Path) -> None:
    run = put(tmp_path / "r1", [sample("a"), sample("b")], {"clean": [RIGHT, WRONG], "fog:mid+flip_h": [RIGHT, RIGHT]})
    write_nel(run, tmp_path / "out")
    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == [
        *("d-clean/eval-d-clean.json", "d-clean/results.jsonl"),
        *("d-fog=mid+flip_h/eval-d-fog=mid+flip_h.json", "d-fog=mid+flip_h/results.jsonl"),
    ]
    content = whole(tmp_path / "out" / "d-clean")
    assert content["run_id"] == "r1/m-d-clean"
    assert (content["config"]["model"], content["config"]["dataset_digest"]) == ("m", "digest")
    assert content["benchmark"] == {"name": "d-clean", "samples": 2, "unscored": 0, "scores": {"mean_reward": {"value": 0.5}}}


def test_the_number_of_a_problem_is_that_of_every_other_run(tmp_path: Path) -> None:
    few = put(tmp_path / "r1", [sample("b")], {"clean": [RIGHT]})
    many = put(tmp_path / "r2", [sample("c"), sample("b"), sample("a")], {"clean": [RIGHT] * 3}, model="other")
    write_nel(few, tmp_path / "few")
    write_nel(many, tmp_path / "many")
    numbers = {line["scoring_details"]["sample"]: line["problem_idx"] for line in lines(tmp_path / "many" / "d-clean")}
    (line,) = lines(tmp_path / "few" / "d-clean")
    assert line["problem_idx"] == numbers["b"]
    assert len(set(numbers.values())) == 3


def test_the_number_of_a_problem_stays() -> None:
    assert problem_number(sample("q")) == 4416644561268533
    assert problem_number(sample("q", category="dogs", group="", hint="look", seeded_by="x")) == problem_number(sample("q"))


@pytest.mark.parametrize(
    "changes",
    [{"id": "p"}, {"question": "What?"}, {"target": "A"}, {"options": {"B": "cat", "A": "dog"}}, {"target": ("B", "b")}],
    ids=str,
)
def test_another_question_is_another_problem(changes: dict[str, Any]) -> None:
    assert problem_number(sample("q", **changes)) != problem_number(sample("q"))


def test_what_failed_has_no_line_and_no_part_in_the_mean(tmp_path: Path) -> None:
    run = put(tmp_path / "r", [sample("a"), sample("b"), sample("c")], {"clean": [RIGHT, FAILED, WRONG]})
    (benchmark,) = write_nel(run, tmp_path / "out")
    assert (benchmark.results, benchmark.unscored) == (2, 1)
    assert [line["scoring_details"]["sample"] for line in lines(tmp_path / "out" / "d-clean")] == ["a", "c"]
    entry = whole(tmp_path / "out" / "d-clean")["benchmark"]
    assert (entry["samples"], entry["unscored"], entry["scores"]) == (2, 1, {"mean_reward": {"value": 0.5}})
    all_failed = exported(tmp_path / "all", [sample("a")], [FAILED])
    assert (lines(all_failed), whole(all_failed)["benchmark"]["scores"]) == ([], {})


def test_unreadable_answers_are_wrong_and_said_to_be_unreadable(tmp_path: Path) -> None:
    (line,) = lines(exported(tmp_path, [sample("a")], [Score.unparsed("refusal")]))
    assert (line["reward"], line["extracted_answer"]) == (0.0, None)
    assert line["scoring_details"] == {"sample": "a", "state": "unparsed", "rule": "refusal"}


def test_of_several_views_the_best_one_counts(tmp_path: Path) -> None:
    scores = [WRONG, RIGHT, RIGHT, RIGHT, *[WRONG] * 4, WRONG, RIGHT, UNASKED, UNASKED, RIGHT, RIGHT, FAILED, RIGHT]
    run = put(tmp_path / "r", [sample(name) for name in "abcd"], {"patches:2": scores})
    assert rewards(run, tmp_path / "out", "patches:2") == {"a": 1.0, "b": 0.0, "c": 1.0}
    views = [line["scoring_details"]["view"] for line in lines(tmp_path / "out" / "d-patches=2")]
    assert views == [1, 0, 1]
    assert lines(tmp_path / "out" / "d-patches=2")[0]["scoring_details"]["views"] == 4


def test_graded_scores_stay_what_they_are(tmp_path: Path) -> None:
    run = put(tmp_path / "r", [sample("a"), sample("b")], {"clean": [Score(0.25, "words", "cat"), RIGHT]})
    assert rewards(run, tmp_path / "out", "clean") == {"a": 0.25, "b": 1.0}
    assert whole(tmp_path / "out" / "d-clean")["benchmark"]["scores"]["mean_reward"]["value"] == 0.625


def test_what_was_expected_is_text_and_no_category_is_none(tmp_path: Path) -> None:
    boxes = Localisation((100, 50), {"nose": (1.0, 2.0, 3.0, 4.0)}, {}, given_in=1000)
    bare = {"category": "", "group": ""}
    samples = [sample("a", target=("cat", "a cat"), **bare), sample("b", target="", task="boxes", localisation=boxes)]
    first, second = lines(exported(tmp_path, samples, [RIGHT, RIGHT]))
    assert (first["expected_answer"], first["metadata"]) == ("cat | a cat", {})
    assert second["expected_answer"] == '{"nose":[1.0,2.0,3.0,4.0]}'


@pytest.mark.parametrize("text", ["one\u2028two\u0085three\x1cfour\nfive", "half \ud83d of it"])
def test_whatever_a_model_says_is_one_line_that_can_be_printed(text: str, tmp_path: Path) -> None:
    (line,) = lines(exported(tmp_path, [sample("a")], [RIGHT], text=text))
    assert line["model_response"].encode() == text.encode("utf-8", "backslashreplace")


def test_one_of_several_models_has_to_be_named(tmp_path: Path) -> None:
    run = put(tmp_path / "r", [sample("a")], {"clean": [RIGHT]})
    put(run, [sample("a")], {"clean": [WRONG], "fog:low": [WRONG]}, model="tiny")
    with pytest.raises(UsageError, match=r"has 2 models, m, tiny, and nel compares one with one\. Name one of them with --model"):
        write_nel(run, tmp_path / "out")
    with pytest.raises(UnknownName, match=r"--model: unknown model 'tinny'\. Did you mean 'tiny'\? Known: m, tiny"):
        write_nel(run, tmp_path / "out", model="tinny")
    assert not (tmp_path / "out").exists()
    assert [benchmark.name for benchmark in write_nel(run, tmp_path / "out", model="tiny")] == ["d-clean", "d-fog:low"]
    assert lines(tmp_path / "out" / "d-clean")[0]["reward"] == 0.0


def test_nothing_is_added_to_what_is_there(tmp_path: Path) -> None:
    run = put(tmp_path / "r", [sample("a")], {"clean": [RIGHT]})
    write_nel(run, tmp_path / "deep" / "out")
    with pytest.raises(UsageError, match=r"out' exists: nel would take whatever it holds for results of this run\. Name a dir"):
        write_nel(run, tmp_path / "deep" / "out")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_two_problems_of_one_number_are_refused_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nel, "_DIGITS", 1)
    samples = [sample(str(number)) for number in range(17)]
    run = put(tmp_path / "r", samples, {"clean": [RIGHT] * 17})
    with pytest.raises(DatasetError, match=r"d: the samples '\d+' and '\d+' would both be problem \d+ of nel\. Give one of them"):
        write_nel(run, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_data_set_of_another_metric_says_so(tmp_path: Path) -> None:
    run = put(tmp_path / "r", [sample("a")], {"clean": [RIGHT]}, metric="pope_f1")
    assert write_nel(run, tmp_path / "out")[0].corpus_metric == "pope_f1"
    assert whole(tmp_path / "out" / "d-clean")["config"]["corpus_metric"] == "pope_f1"


def test_no_run_and_an_empty_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no predictions\.sqlite: expected the directory of a run, \.vlmrobust/runs/RUN"):
        write_nel(tmp_path, tmp_path / "out")
    Evidence.open(tmp_path / "r").close()
    with pytest.raises(UsageError, match="the run measured nothing that could be exported"):
        write_nel(tmp_path / "r", tmp_path / "out")
