from __future__ import annotations

import pytest

from pytest_vlmrobust.core.sample import Sample


@pytest.mark.parametrize(("task", "options", "chance"), [("choice", "ABCD", 0.25), ("yes_no", "", 0.5), ("open", "", 0.0)])
def test_chance_is_what_a_uniform_guess_scores(task: str, options: str, chance: float) -> None:
    sample = Sample("1", (), "?", "A", task, options=dict.fromkeys(options, "x"))
    assert sample.chance == chance
