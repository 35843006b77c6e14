from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pytest_vlmrobust.reporting.writing import render_sentences, write_out, write_result, write_text


def test_sentences_break_between_words_on_a_terminal_alone() -> None:
    sentences = ["model-shapes: " + "word " * 20 + "end", "[red] is no markup"]
    assert render_sentences(sentences, width=40, color=False).splitlines() == sentences
    rows = render_sentences(sentences, width=40, color=True).splitlines()
    assert max(map(len, rows)) <= 40
    assert " ".join(row.strip() for row in rows) == " ".join(sentences)
    assert [row for row in rows if not row.startswith("  ")] == [rows[0], sentences[1]]


def test_a_file_is_replaced_and_what_a_link_leads_to_is_written(tmp_path: Path) -> None:
    target, link, other = (tmp_path / name for name in ("target", "link", "other"))
    target.write_text("old")
    os.link(target, other)
    link.symlink_to(target)
    write_out(link, "new\ud800")
    assert (link.is_symlink(), target.read_text(), other.read_text()) == (True, "new\\ud800", "new\\ud800")
    write_out(target, "newer")
    assert (target.read_text(), other.read_text()) == ("newer", "new\\ud800")
    write_text(link, "newest")  # a report, which takes the place of whatever stood there
    assert (link.is_symlink(), link.read_text(), target.read_text()) == (False, "newest", "newer")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "other", "target"]


def test_a_result_goes_where_somebody_wants_it_else_to_its_usual_place(tmp_path: Path) -> None:
    usual, wanted, secret = tmp_path / "junit.xml", tmp_path / "new" / "folder" / "j.xml", tmp_path / "secret"
    secret.write_text("mine")
    usual.symlink_to(secret)  # in a run of somebody else
    assert write_result(wanted, usual, "<a/>") == wanted
    assert (wanted.read_text(), secret.read_text()) == ("<a/>", "mine")
    assert write_result(None, usual, "<b/>") == usual
    assert (usual.is_symlink(), usual.read_text(), secret.read_text()) == (False, "<b/>", "mine")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_out(pipe, "x")
    reader.join(60)
    assert (read, pipe.is_fifo()) == (["x"], True)
