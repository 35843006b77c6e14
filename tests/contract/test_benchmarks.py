"""The record of every benchmark: what it names is there, and its number is that of its makers, or said not to be."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_vlmrobust import scoring
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import UNDECLARED, Sample
from pytest_vlmrobust.datasets import benchmark_of, benchmarks, corpus_metric, resolve, synthetic
from pytest_vlmrobust.datasets.benchmarks import SHIPPED, read_benchmarks
from pytest_vlmrobust.scoring.corpus import CORPUS_METRICS

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = yaml.safe_load((FOLDER / "benchmarks.yaml").read_text(encoding="utf-8"))
RECORDS = read_benchmarks(SHIPPED)
MOST_DIFFERENT = 1e-12


@dataclass(frozen=True)
class Case:
    """Answers, and what they are worth."""

    benchmark: str
    rows: list[dict[str, str]]
    published: float | None
    here: float
    parts: Mapping[str, float] = field(default_factory=dict)


CASES = [
    Case(name, case["rows"], case["published"], case.get("here", case["published"]), case.get("parts", {}))
    for case in GOLDEN
    for name in case["benchmarks"]
]
IDS = [f"{case.benchmark}-{number}" for number, case in enumerate(CASES)]


@pytest.mark.cases("name", benchmarks())
def test_scorers_and_metric_exist(name: str) -> None:
    benchmark = benchmarks()[name]
    scorers = {scorer for kind in benchmark.kinds for scorer in (kind.scorer, kind.unlisted) if scorer}
    assert scorers
    assert scorers <= set(scoring.names()) or scorers == {UNDECLARED}
    assert (scorers == {UNDECLARED}) == (benchmark.number == "refused")
    assert benchmark.metric in CORPUS_METRICS.names()


@pytest.mark.cases("name", RECORDS)
def test_the_rule_of_its_makers_is_said_with_its_source(name: str) -> None:
    record = RECORDS[name]
    assert record.rule
    assert record.source
    assert record.number
    assert bool(record.why) == (record.number != "equal")


def answered(folder: Path, name: str, rows: list[dict[str, str]]) -> tuple[Sequence[Sample], list[Prediction], list[Score], str]:
    """Returns the questions of a file with these rows, what a model said, what that is worth, and the metric of the whole."""
    dataset = resolve(written(folder, RECORDS[name].file_names[0], rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a number is ours; test_a_number_of_our_own_is_said_to_be_one
        samples = dataset.samples()
    said = [Prediction(row["said"], "generate") for row in rows]
    return samples, said, [scoring.score(*pair) for pair in zip(samples, said, strict=True)], corpus_metric(dataset)


def measured(folder: Path, name: str, rows: list[dict[str, str]]) -> scoring.CorpusScore:
    samples, said, scores, metric = answered(folder, name, rows)
    return scoring.corpus_score(metric, samples, said, scores)


def written(folder: Path, name: str, rows: list[dict[str, str]]) -> Path:
    lines = []
    shades: dict[str, int] = {}
    columns = [*dict.fromkeys(column for row in rows for column in row if column not in {"said", "picture"}), "image_path"]
    for row in rows:
        picture = f"{row.get('picture', row['index'])}.png"
        (folder / picture).write_bytes(synthetic.picture(0, shade=shades.setdefault(picture, len(shades))))
        cells: Mapping[str, Any] = {**row, "image_path": picture}
        lines.append("\t".join('"' + str(cells.get(column, "")).replace('"', '""') + '"' for column in columns))
    path = folder / f"{name}.tsv"
    path.write_text("\n".join(["\t".join(columns), *lines, ""]), encoding="utf-8")
    return path


def test_every_benchmark_that_is_scored_has_a_case() -> None:
    scored = {name for name, record in RECORDS.items() if record.number != "refused"}
    assert {case.benchmark for case in CASES} == scored
    assert len(scored) >= 80


def test_most_names_of_vlmevalkit_are_scored_and_the_others_refused() -> None:
    names = (FOLDER / "vlmevalkit_names.txt").read_text(encoding="utf-8").split()
    known = {name: record for name in names if (record := benchmark_of(name))}
    assert sum(record.number != "refused" for record in known.values()) >= 150
    assert {*names} - {*known} == {"Physics"}, "a name that data of one's own may have; its open questions are refused"


@pytest.mark.cases("case", CASES)
def test_a_golden_case(tmp_path: Path, case: Case) -> None:
    score = measured(tmp_path, case.benchmark, case.rows)
    assert score.value == pytest.approx(case.here, abs=1e-9)
    assert {part: score.parts[part] for part in case.parts} == pytest.approx(case.parts)


@pytest.mark.cases("name", RECORDS)
def test_its_number_stands_to_the_published_one_as_the_record_says(name: str) -> None:
    cases = [case for case in CASES if case.benchmark == name and case.published is not None]
    differing = [case for case in cases if abs(case.here - (case.published or 0.0)) > MOST_DIFFERENT]
    if RECORDS[name].number == "equal":
        assert cases
        assert not differing
    elif cases:
        assert RECORDS[name].number == "different"
        assert differing


@pytest.mark.cases("case", [case for case in CASES if case.benchmark in {"3DSRBench", "MM-UPD"}])
def test_both_forms_of_a_question_are_one_group(tmp_path: Path, case: Case) -> None:
    """Its image is mirrored or exchanged, so that the digests of the images differ."""
    samples, *_ = answered(tmp_path, case.benchmark, case.rows)
    questions = {sample.keys["question"] for sample in samples}
    pairs = {(sample.keys["question"], sample.group) for sample in samples}
    assert len(questions) == len(pairs) == len({group for _, group in pairs}) < len(samples)


@pytest.mark.cases("case", [case for case in CASES if case.benchmark in {"3DSRBench", "MM-UPD"}])
def test_questions_about_one_image_are_one_group_and_pair_by_their_key(tmp_path: Path, case: Case) -> None:
    samples, *_ = answered(tmp_path, case.benchmark, [{**row, "picture": "one"} for row in case.rows])
    assert len({sample.keys["question"] for sample in samples}) > 1
    assert len({sample.source_image for sample in samples}) == 1
    score = measured(tmp_path, case.benchmark, [{**row, "picture": "one"} for row in case.rows])
    assert score.value == pytest.approx(case.here, abs=1e-9)


def test_a_thing_without_a_word_on_it_is_not_attacked(tmp_path: Path) -> None:
    (case,) = [case for case in CASES if case.benchmark == "SCAM"]
    samples, *_ = answered(tmp_path, "SCAM", case.rows)
    assert all(bool(sample.target_of_attack) == (sample.category != "NoSCAM") for sample in samples)


ATTACKED = [case for case in CASES if case.benchmark in {"SCAM", "VLMs are Biased"}]


@pytest.mark.cases("case", ATTACKED)
def test_who_gives_in_is_who_gives_in_by_the_program_of_the_makers(tmp_path: Path, case: Case) -> None:
    """In other words, ``process_answer`` of SCAM and VLMEvalKit's ``vlmsarebiased.py``, where both read an answer."""
    samples, said, scores, _ = answered(tmp_path, case.benchmark, case.rows)
    for sample, prediction, score, row in zip(samples, said, scores, case.rows, strict=True):
        wanted = [score.value, scoring.score(replace(sample, target=sample.target_of_attack), prediction).value]
        if case.benchmark == "SCAM":
            spelled = prediction.text.strip().lower().rstrip(".")
            letters = {spelled, spelled[:2].rstrip(" ):].")} if not spelled.startswith("(") else {spelled[1:2]}
            names = (sample.target, sample.options[str(sample.target)]), (sample.target_of_attack, row["attack_word"])
            assert wanted == [float(bool({str(name).lower() for name in pair} & letters)) for pair in names]
        elif prediction.text.startswith("{"):
            bare = prediction.text.lower().strip("{}").strip()
            assert wanted == [float(bare == row[column].lower()) for column in ("ground_truth", "expected_bias")]


@pytest.mark.parametrize("name", [name for name, record in RECORDS.items() if record.number == "ours"])
def test_a_number_of_our_own_is_said_to_be_one(tmp_path: Path, name: str) -> None:
    (case,) = [case for case in CASES if case.benchmark == name]
    said = f"the number of {name} is ours and not comparable with published ones. Its makers' rule: a language model"
    with pytest.warns(UserWarning, match=said):
        resolve(written(tmp_path, RECORDS[name].file_names[0], case.rows)).samples()


@pytest.mark.cases("name", [name for name, record in RECORDS.items() if record.number == "refused"])
def test_what_has_no_scorer_is_refused(tmp_path: Path, name: str) -> None:
    rows = [{"index": "1", "question": "Why?", "answer": "because", "said": ""}]
    dataset = resolve(written(tmp_path, RECORDS[name].file_names[0], rows))
    with pytest.warns(UserWarning, match=re.escape(f"{name} has no scorer here, and a run is refused: {RECORDS[name].why}")):
        samples = dataset.samples()
    with pytest.raises(UsageError, match="the data do not say how its answer is compared with the target"):
        scoring.check_scoring(dataset.name, corpus_metric(dataset), samples)
