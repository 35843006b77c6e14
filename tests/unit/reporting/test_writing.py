from __future__ import annotations

import doctest
import os
import re
import threading
from pathlib import Path

import pytest

from pytest_vlmrobust.reporting import writing
from pytest_vlmrobust.reporting.writing import code, inert, render_sentences, write_out, write_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("[x](http://evil)", "&#91;x&#93;(http://evil)"),
        ("![i](http://evil/p.png)", "!&#91;i&#93;(http://evil/p.png)"),
        ("[1, 2](http://evil)", "&#91;1, 2&#93;(http://evil)"),
        ("0.3 [-0.050, 0.300] > 0.2", "0.3 [-0.050, 0.300] > 0.2"),
        ("ping @everyone, jane@example.org", "ping @&#8203;everyone, jane@example.org"),
        ("\x1b[31m \u202eabc", "\\x1b&#91;31m \\u202eabc"),
        ("\\[x](y)", "&#92;&#91;x&#93;(y)"),
        ("&lt;i&gt; a & b", "&amp;lt;i&amp;gt; a & b"),
        ("# big", "&#35; big"),
        ("1. one", "&#49;&#46; one"),
        (
            "**b** _i_ snake_case ~~s~~ `c` $m$",
            "&#42;&#42;b&#42;&#42; &#95;i&#95; snake_case &#126;&#126;s&#126;&#126; &#96;c&#96; &#36;m&#36;",
        ),
        ("a|b\nc", "a\\|b c"),
        ("-0.1..0.3", "-0.1..0.3"),
    ],
)
def test_nothing_is_obeyed(text: str, shown: str) -> None:
    assert inert(text) == shown


@pytest.mark.parametrize("text", ["a", "`a`", "a``b`c", "`", "<b>|@x"])
def test_code_ends_where_it_should(text: str) -> None:
    shown = code(text)
    fence = re.match("`+", shown)
    assert fence is not None
    inside = shown[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in inside.strip()
    assert inside.strip(" ").replace("\\|", "|") == text
    assert inside[0] != "`" != inside[-1]


def test_the_examples() -> None:
    assert doctest.testmod(writing).failed == 0


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name")
def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_out(pipe, "x")
    reader.join(60)
    assert (read, pipe.is_fifo()) == (["x"], True)
