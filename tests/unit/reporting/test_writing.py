from __future__ import annotations

import doctest
import re

import pytest

from pytest_vlmrobust.reporting import writing
from pytest_vlmrobust.reporting.writing import code, inert, render_sentences


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
