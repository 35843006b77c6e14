"""``--vlm-answer``: by which method choices are answered."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from tests.forked import run_forked

from .conftest import Project, ends


def test_what_is_no_method_is_refused(project: Project) -> None:
    ends(project.run("--vlm-answer=txt"), 4, "*--vlm-answer 'txt': expected one of letters, text. Did you mean 'text'?")


LETTERS = '{"rules": [{"setting": "no_image", "letter": "A"}, {"letter": "B", "logprobs": {"A": -2.3, "B": -0.1}}]}'


def methods(project: Project) -> set[str]:
    """Returns how the answers in the store were got."""
    with contextlib.closing(sqlite3.connect(project.path / ".vlmrobust/predictions.sqlite")) as connection:
        return {json.loads(answer)["method"] for (answer,) in connection.execute("select answer from predictions")}


def test_letters_of_a_script_that_writes_text_are_refused_at_the_start(project: Project) -> None:
    result = project.run("--vlm-answer=letters")
    ends(result, 4, "ERROR: model 'model': choices are to be answered by letters, and no rule of *model.yaml has*")
    assert "Traceback" not in result.stderr.str()


def test_letters_of_a_model_that_reasons_are_refused_at_the_start(project: Project) -> None:
    project.write("model.yaml", LETTERS)
    project.write("models.yaml", "models: {reasons: {backend: scripted, path: model.yaml, prompt_mode: cot}}")
    result = project.run("--vlm-models=models.yaml", "--vlm=reasons", "--vlm-answer=letters", models=())
    ends(result, 4, "ERROR: model 'reasons': *prompt mode 'cot' answers with text*Ask by text: --vlm-answer=text*")


def test_one_answer_by_text_among_letters_is_an_error_that_says_so(project: Project) -> None:
    project.write("model.yaml", LETTERS.replace('[{"s', '[{"sample": "q3", "answer": "B"}, {"s'))
    result = project.run("--vlm-answer=letters")
    ends(result, 11, "ERROR model-data-clean *sample 'q3' of 'data' was answered by text, and choices are to be * letters*")


@pytest.mark.parametrize(("answer", "method"), [("letters", "letter_logits"), ("text", "generate")])
def test_a_script_of_letters_answers_as_it_is_asked_to(project: Project, answer: str, method: str) -> None:
    project.write("model.yaml", LETTERS)
    assert project.run(f"--vlm-answer={answer}").ret == 0
    assert methods(project) == {method}


@pytest.mark.slow
def test_answers_by_text_and_by_letters_are_kept_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.vlm_settings('clean')\ndef test_cell(vlm_cell):\n    vlm_cell.check()\n")
    store = pytester.path / ".vlmrobust/predictions.sqlite"
    known: set[str] = set()
    for answer, method in (("text", "generate"), ("letters", "letter_logits")):
        options = ("--vlm=tiny", "--vlm-sample=6", "--vlm-dataset=shapes", f"--vlm-answer={answer}", "-p", "no:cacheprovider")
        run_forked(pytester, *options).stdout.fnmatch_lines(["12 inferences; 0 answers were cached"])
        with contextlib.closing(sqlite3.connect(store)) as connection:
            rows = dict(connection.execute("select key, answer from predictions").fetchall())
        assert {json.loads(rows[key])["method"] for key in rows.keys() - known} == {method}
        known |= rows.keys()
