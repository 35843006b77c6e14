"""``--vlm-answer``: by which method choices are answered."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from .conftest import Project


def test_what_is_no_method_is_refused(project: Project) -> None:
    result = project.run("--vlm-answer=txt")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--vlm-answer 'txt': expected one of letters, text. Did you mean 'text'?"])


@pytest.mark.slow
def test_answers_by_text_and_by_letters_are_kept_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.vlm_settings('clean')\ndef test_cell(vlm_cell):\n    vlm_cell.check()\n")
    store = pytester.path / ".vlmrobust/predictions.sqlite"
    known: set[str] = set()
    for answer, method in (("text", "generate"), ("letters", "letter_logits")):
        options = ("--vlm=tiny", "--vlm-sample=6", "--vlm-dataset=shapes", f"--vlm-answer={answer}", "-p", "no:cacheprovider")
        pytester.runpytest_subprocess(*options).stdout.fnmatch_lines(["12 inferences; 0 answers came from the store"])
        with contextlib.closing(sqlite3.connect(store)) as connection:
            rows = dict(connection.execute("select key, answer from predictions").fetchall())
        assert {json.loads(rows[key])["method"] for key in rows.keys() - known} == {method}
        known |= rows.keys()
