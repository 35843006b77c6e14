from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.filling import Filling, Shard
from pytest_vlmrobust.evaluation.run.probes import PROBED

from ..conftest import World, sample

CELLS = [Cell("model", "data", setting) for setting in (CLEAN, NO_IMAGE, Setting.parse("flip_h"), Setting.parse("invert"))]


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1/9999999"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected i/n with i from 1 to n, such as 1/4"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("1/1", "")),
        (
            {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "5"},
            ("3/4", "SLURM_ARRAY_TASK_ID"),
        ),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "3"}, ("1/3", "JOB_COMPLETION_INDEX")),
        ({"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "2"}, ("2/2", "CI_NODE_INDEX")),
        ({"CIRCLE_NODE_INDEX": "1", "CIRCLE_NODE_TOTAL": "2"}, ("2/2", "CIRCLE_NODE_INDEX")),
    ],
)
def test_a_scheduler_says_which_part_it_is(environment: dict[str, str], expected: tuple[str, str]) -> None:
    shard, variable = Shard.of_scheduler(environment)
    assert (str(shard), variable) == expected


def test_a_scheduler_that_does_not_say_how_many_parts_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match="JOB_COMPLETION_INDEX=0, and no JOB_COMPLETIONS says of how many parts"):
        Shard.of_scheduler({"JOB_COMPLETION_INDEX": "0"})


def test_a_scheduler_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="CIRCLE_NODE_INDEX=4, CIRCLE_NODE_TOTAL=3: no such part"):
        Shard.of_scheduler({"CIRCLE_NODE_INDEX": "4", "CIRCLE_NODE_TOTAL": "3"})


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_ARRAY_TASK_ID": "9" * 6000},
        {"SLURM_ARRAY_TASK_COUNT": "9" * 6000},
        {"SLURM_ARRAY_TASK_MIN": "x"},
        {"SLURM_ARRAY_TASK_MIN": "-1"},
        {"SLURM_ARRAY_TASK_ID": "\u0661"},
    ],
)
def test_a_scheduler_that_counts_in_another_way_is_refused(changes: dict[str, str]) -> None:
    given = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "3", **changes}
    with pytest.raises(UsageError, match=r"^SLURM_ARRAY_TASK_ID=.*: expected whole numbers of at most six digits") as caught:
        Shard.of_scheduler(given)
    assert len(str(caught.value)) < 300


@pytest.fixture(autouse=True)
def _samples(world: World) -> None:
    world.samples = [sample(number) for number in range(40)]


def fill(filling: Filling, evaluator: Evaluator, cells: Sequence[Cell]) -> list[Cell]:
    return list(filling.fill(evaluator, filling.plan(evaluator, cells)))


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_each_question_is_in_one_part(world: World, count: int) -> None:
    evaluator = world.evaluator()
    for about in CELLS:
        for query in evaluator.queries(about):
            assert sum(Shard(number, count).holds(query, about) for number in range(1, count + 1)) == 1


def test_parts_ask_everything_once(world: World) -> None:
    requests: list[tuple[str, str]] = []

    def answer(request: Request) -> str:
        requests.append((request.sample_id, request.setting))
        return "A"

    world.model.answer = answer
    directory = world.directory
    fillings = []
    for number in (1, 2, 3):
        world.directory = directory / str(number)
        fillings.append(Filling(Shard(number, 3)))
        fill(fillings[-1], world.evaluator(), CELLS)
    whole = Filling(Shard(1, 1))
    world.directory = directory / "whole"
    once = set(requests)
    assert len(requests) == len(once)
    assert min(filling.answered for filling in fillings) > 0
    done = fill(whole, world.evaluator(), CELLS)
    assert {str(cell.setting) for cell in done} >= {str(cell.setting) for cell in CELLS}
    assert set(requests) == once
    assert sum(filling.answered for filling in fillings) == whole.answered == len(CELLS) * 40 + PROBED  # once more, alone
    assert sum(filling.inferred for filling in fillings) == whole.inferred
    assert whole.lines() == [f"172 answers, {whole.inferred} of them inferred, 0 are missing"]


def test_what_fails_is_counted_and_stops_nothing(world: World) -> None:
    def answer(request: Request) -> str:
        if request.setting == "invert":
            raise ValueError("no answer to this one")
        return "A"

    world.model.answer = answer
    filling = Filling(Shard(1, 1))
    fill(filling, world.evaluator(), [*CELLS, Cell("model", "data", Setting.parse("flip_v"))])
    assert filling.lacking == 40
    assert filling.answered == 4 * 40 + PROBED
    assert [line for line in filling.lines() if "missing: 40 x " in line]
