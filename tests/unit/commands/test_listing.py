"""`vlmrobust data` says what a file is and how it would be scored, and draws its questions without obeying them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust import cli
from pytest_vlmrobust.datasets import synthetic

Captured = pytest.CaptureFixture[str]
Write = Callable[..., Path]

HOSTILE = (
    '<script>alert(1)</script><img src=x onerror="alert(2)">\'"></pre></style><style>*{}</style>'
    '<a href="javascript:alert(3)">{{ 7 * 7 }}{% include "page.html" %}</a>\x1b[2J\u202e'
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_rows(*rows: dict[str, Any], name: str = "data.jsonl") -> Path:
        for number in range(3):
            (tmp_path / f"{number}.png").write_bytes(synthetic.picture(number, size=(40 + 20 * number, 30)))
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write_rows


def choice(number: int, picture: int = 0, answer: str = "A", **more: Any) -> dict[str, Any]:
    return {
        "id": f"q{number}",
        "image": f"{picture}.png",
        "question": "Which?",
        "options": ["cat", "dog"],
        "answer": answer,
        **more,
    }


def run(capsys: Captured, *arguments: str | Path, code: int = 0) -> tuple[dict[str, str], str]:
    assert cli.main(["data", *map(str, arguments)]) == code
    said = capsys.readouterr()
    return dict(re.split(r"\s{2,}|: ", line, maxsplit=1) for line in said.out.splitlines()), said.err


def test_what_a_benchmark_is_and_how_it_is_scored(tmp_path: Path, capsys: Captured) -> None:
    facts, error = run(capsys, synthetic.write("POPE", tmp_path))
    assert facts["read as"] == "POPE: yes/no questions: is this object in the image?"
    assert facts["rule of its makers"].startswith(
        "F1 of yes; a question counts once in each set that its category names (VLMEval"
    )
    assert facts["number here"].startswith("different: an answer that cannot be read is wrong")
    assert (facts["scorer"], facts["whole dataset"]) == ("yes_no (8)", "pope_f1")
    assert facts["chance"].startswith("50.0 % by guessing, 62.5 % without looking; always 'Yes'")
    assert facts["answers (yes_no)"] == "yes (5), no (3)"
    assert error == ""


def test_counts_duplicates_contradictions_groups_and_sizes(write: Write, capsys: Captured) -> None:
    rows = [choice(0), choice(1), choice(2, answer="B"), choice(3, 1, category="far"), choice(4, 2)]
    facts, _ = run(capsys, write(*rows))
    assert facts["questions"] == "5: choice (5)"
    assert facts["answers (choice)"] == "A (4), B (1)"
    assert facts["categories"] == "far (1)"
    assert facts["groups"] == "3, the largest of 3 questions"
    assert facts["duplicates"] == "1 question asked again about the same images, with the same answer"
    assert facts["contradictions"] == "1 question with different answers (the first: 'q0', 'q1')"
    assert facts["images"] == "3 different ones; 1 for a question (5)"
    assert facts["sizes"] == "long edges from 40 to 80 pixels; 40 x 30 (1), 60 x 30 (1), 80 x 30 (1)"


def test_rotated_options_with_the_same_right_text_agree(write: Write, capsys: Captured) -> None:
    facts, _ = run(capsys, write(choice(0), choice(1, options=["dog", "cat"], answer="B")))
    assert (facts["duplicates"][0], facts["contradictions"][0]) == ("0", "0")


def test_open_questions_without_a_scorer_would_be_refused(write: Write, capsys: Captured) -> None:
    facts, error = run(capsys, write({"id": "q", "image": "0.png", "question": "Why?", "answer": "so"}), code=1)
    assert (facts["scorer"], facts["chance"]) == ("none", "not known without a scorer")
    assert "a run with these data is refused: dataset 'data', sample 'q' is not scored" in error


def test_accepted_answers_are_counted_once_a_question(tmp_path: Path, capsys: Captured) -> None:
    facts, _ = run(capsys, synthetic.write("TextVQA", tmp_path))
    assert facts["answers (open)"] == "unanswerable (8), red (2), green (2), blue (2), yellow (2)"


def test_pictures_that_cannot_be_read_are_all_named(write: Write, tmp_path: Path, capsys: Captured) -> None:
    path = write(choice(0), choice(1, 1), choice(2, 2))
    (tmp_path / "1.png").write_bytes(b"no image")
    (tmp_path / "2.png").write_bytes((tmp_path / "2.png").read_bytes()[:60])
    _, error = run(capsys, path, "--out", tmp_path / "page.html", code=4)
    assert "2 images cannot be read; mend or remove these rows:\n" in error
    assert f"{path}:2, id 'q1', key 'image': " in error
    assert f"{path}:3, id 'q2', key 'image': " in error
    assert "Image 1 cannot be read." in (tmp_path / "page.html").read_text(encoding="utf-8")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_is_shown_and_not_obeyed(write: Write, tmp_path: Path, capsys: Captured) -> None:
    hostile = choice(
        0, question=HOSTILE, hint=HOSTILE, category=HOSTILE, options=[HOSTILE, "dog"], id=HOSTILE.replace("\u202e", "")
    )
    page = tmp_path / "page.html"
    run(capsys, write(hostile), "--out", page)
    harmless = tmp_path / "harmless.html"
    run(capsys, write(choice(0, hint="h", category="c")), "--out", harmless)
    read, expected = _Tags(), _Tags()
    read.feed(page.read_text(encoding="utf-8"))
    expected.feed(harmless.read_text(encoding="utf-8"))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in expected.tags]
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert all((given["src"] or "").startswith("data:image/webp;base64,") for tag, given in read.tags if tag == "img")
    assert "<script>alert(1)</script>" in read.text
    assert "{{ 7 * 7 }}" in read.text
    assert r"\x1b[2J\u202e" in read.text
    (policy,) = [given["content"] or "" for tag, given in read.tags if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")


def test_a_terminal_obeys_nothing(write: Write, capsys: Captured) -> None:
    assert cli.main(["data", str(write(choice(0, category=HOSTILE, id=HOSTILE.replace("\u202e", ""))))]) == 0
    said = capsys.readouterr()
    assert [char for char in said.out + said.err if not char.isprintable() and char != "\n"] == []


def test_the_first_twenty_are_drawn(write: Write, tmp_path: Path, capsys: Captured) -> None:
    said, _ = run(capsys, write(*(choice(number) for number in range(25))), "--out", tmp_path / "page.html")
    assert said[str(tmp_path / "page.html")] == "20 questions drawn"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count('<article class="example">') == 20


def test_mistakes_are_said(tmp_path: Path, capsys: Captured) -> None:
    assert cli.main(["data", "nothing-here"]) == 4
    assert "dataset 'nothing-here' was not found" in capsys.readouterr().err
    assert cli.main(["data", "shapes", "--out", str(tmp_path / "page.png")]) == 4
    assert "Expected a name that ends with .html" in capsys.readouterr().err
