"""`vlmrobust export` as a user meets it who has not installed what a format needs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from tests.unit.reporting.exports.conftest import keep, records


@pytest.mark.parametrize(("form", "library"), [("mlflow", "mlflow"), ("wandb", "wandb"), ("inspect", "inspect_ai.log")])
def test_a_library_that_is_absent_is_one_line_with_what_installs_it(
    form: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(library)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    run = keep(tmp_path / "run", records())
    monkeypatch.chdir(tmp_path)
    out = ["--out", "out"] if form == "inspect" else []
    assert main(["export", form, str(run), *out]) == 4
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith("vlmrobust: exporting to ")
    assert re.search(rf"pip install .*'{library.partition('_')[0]}[\w-]*>=", line)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"], "nothing is begun"
