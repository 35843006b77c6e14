"""The words of a command line that runs tests again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust.reporting import Command


@pytest.mark.parametrize(
    ("words", "positional", "options"),
    [
        (["--vlm=tiny", "suites"], ["suites"], ["--vlm=tiny"]),
        (["--vlm", "tiny", "suites", "-q"], ["suites"], ["--vlm", "tiny", "-q"]),
        (["-k", "fog or snow", "-n", "4", "-n4", "-kfog", "--dist=load", "-m", "x", "a", "b"], ["a", "b"], []),
        (["--lf", "-x", "--vlm-plan", "--vlm-rerun=failed", "--vlm-rerun", "errors", "--vlm-aa"], [], []),
        (["--vlm-report=out", "--junitxml", "j.xml", "--vlm-update-baseline", "--vlm-baseline=b"], [], ["--vlm-baseline=b"]),
        (
            ["-p", "no:randomly", "-o", "vlm_seed=3", "--vlm-dataset=my data"],
            [],
            "-p;no:randomly;-o;vlm_seed=3;--vlm-dataset=my data",
        ),
        (["-vv", "-rA", "--maxfail=1", "--maxfail", "2"], [], ["-vv", "-rA"]),
    ],
)
def test_what_is_kept(words: list[str], positional: list[str], options: list[str] | str) -> None:
    kept = options.split(";") if isinstance(options, str) else options
    found = Command.of(words, positional, Path("/a"), Path("/a/b"))
    assert found == Command(tuple(kept), tuple(positional), Path(), Path("b"))
