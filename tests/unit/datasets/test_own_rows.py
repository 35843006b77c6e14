"""Rows of one's own in JSONL, CSV and Parquet: the same samples, metadata that become slices, and targets of attacks."""

from __future__ import annotations

import base64
import importlib
import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import DatasetError, MissingExtra
from pytest_vlmrobust.core.sample import MISSING, Sample, strata_by_kind
from pytest_vlmrobust.datasets.resolve import open_dataset


def png(red: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (9, 7), (red, 20, 30)).save(stream, "PNG")
    return stream.getvalue()


def content(samples: tuple[Sample, ...]) -> list[object]:
    return [
        (s.id, s.question, dict(s.options), s.target, s.category, dict(s.meta), s.target_of_attack, dict(s.keys)) for s in samples
    ]


def read(path: Path) -> tuple[Sample, ...]:
    return tuple(open_dataset(path).samples())


def own(path: Path, *rows: dict[str, Any]) -> tuple[Sample, ...]:
    (path / "p.png").write_bytes(png())
    base = {"image": "p.png", "question": "What?", "options": ["cat", "dog"], "answer": "B"}
    lines = [json.dumps({"id": str(number), **base, **row}) for number, row in enumerate(rows)]
    (path / "own.jsonl").write_text("\n".join(lines))
    return read(path / "own.jsonl")


CSV = """id,image,question,A,B,answer,category,meta.camera,meta.site,keys,target_of_attack
1,p.png,"What, here?",cat,dog,B,x,night,3,"{'figure': 'f'}",A
2,p.png,Which?,cat,dog,A,x,,3,,
"""
JSONL = [
    {
        "id": 1,
        "image": "p.png",
        "question": "What, here?",
        "options": ["cat", "dog"],
        "answer": "B",
        "category": "x",
        "meta": {"camera": "night", "site": 3},
        "keys": {"figure": "f"},
        "target_of_attack": "A",
    },
    {
        "id": 2,
        "image": "p.png",
        "question": "Which?",
        "options": ["cat", "dog"],
        "answer": "A",
        "category": "x",
        "meta.site": "3",
    },
]


def test_a_csv_gives_the_samples_of_the_same_jsonl(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.csv").write_text(CSV)
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, JSONL)))
    from_csv, from_jsonl = read(tmp_path / "own.csv"), read(tmp_path / "own.jsonl")
    assert content(from_csv) == content(from_jsonl)
    assert dict(from_csv[1].meta) == {"camera": MISSING, "site": "3"}
    assert from_csv[0].group == from_jsonl[0].group


def test_a_picture_inside_a_csv_is_read_when_it_is_shown(tmp_path: Path) -> None:
    text = base64.b64encode(png(200)).decode()
    (tmp_path / "own.csv").write_text(f"id,image,question,answer\n1,{text},Is it?,yes\n")
    (sample,) = read(tmp_path / "own.csv")
    assert sample.images[0].load()[0, 0].tolist() == [200, 20, 30]


@pytest.mark.cases(
    ("text", "message"),
    [
        (
            CSV.replace("category", "categroy"),
            "own.csv:2, row id '1', column 'categroy': found 'x', expected no such key. Did you",
        ),
        (CSV.replace("category", "weather"), "what is no part of a question is called meta.weather"),
        (CSV.replace("Which?,cat", "Which?,cat,more"), "own.csv:3, row id '2', column '(all)': found '12 fields', expected 11"),
        (
            CSV.replace(",f'}\",A", ",f'}\",A").replace('",A\n', '",C\n'),
            "column 'target_of_attack': found 'C', expected one of A",
        ),
        (CSV.replace('",A\n', '",B\n'), "column 'target_of_attack': found 'B', expected another answer than the right one"),
        (CSV.replace(",", "\t"), "expected columns separated by commas. The file seems to have '\\t' between them"),
        ("", "is empty: expected a line of column names, and rows"),
        ("id,id\n1,2\n", "own.csv:1 names the column 'id' twice"),
        ("id,image,question,answer\n", "is empty: expected a line of column names, and rows"),
    ],
)
def test_a_malformed_csv_is_named_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(DatasetError) as caught:
        read(tmp_path / "own.csv")
    assert message in str(caught.value)


def test_nested_metadata_become_columns_and_a_missing_value_is_a_slice(tmp_path: Path) -> None:
    samples = own(tmp_path, {"meta": {"camera": {"lens": "wide"}, "night": True}}, {"meta.night": ""}, {})
    assert strata_by_kind(samples) == {
        "meta.camera.lens": [f"meta.camera.lens={MISSING}", "meta.camera.lens=wide"],
        "meta.night": [f"meta.night={MISSING}", "meta.night=true"],
    }
    assert samples[2].strata == (f"meta.camera.lens={MISSING}", f"meta.night={MISSING}")


@pytest.mark.cases(
    ("row", "message"),
    [
        ({"meta": {"a": [1]}}, "key 'meta.a': found [1], expected text, a number, true or false"),
        ({"meta": "night"}, "key 'meta': found 'night', expected a name after 'meta.' without '='"),
        ({"meta.a=b": "c"}, "key 'meta.a=b': found 'c', expected a name after 'meta.' without '='"),
        ({"category": "meta.a=b"}, "key 'category': found 'meta.a=b', expected a category"),
        ({"target_of_attack": "cat"}, "key 'target_of_attack': found 'cat', expected one of A, B"),
    ],
)
def test_metadata_that_no_rule_could_name_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        own(tmp_path, row)
    assert message in str(caught.value)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"own\.parquet needs the package 'pyarrow', .*pip install .*pyarrow"):
        read(tmp_path / "own.parquet")


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow: pip install -e '.[parquet]'")
def test_a_parquet_file_gives_the_samples_of_the_same_jsonl(tmp_path: Path) -> None:
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, JSONL)))
    parquet.write_table(
        arrow.Table.from_pylist([{key: None for row in JSONL for key in row} | row for row in JSONL]), tmp_path / "a.parquet"
    )
    assert content(read(tmp_path / "a.parquet")) == content(read(tmp_path / "own.jsonl"))
    pictures = [{"bytes": png(red), "path": None} for red in (10, 20, 30)]
    rows = [{"id": n, "image": picture, "question": "Is it?", "answer": True} for n, picture in enumerate(pictures)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "b.parquet", row_group_size=2)
    samples = read(tmp_path / "b.parquet")
    assert [int(np.max(sample.images[0].load()[..., 0])) for sample in samples] == [10, 20, 30]
    assert [sample.target for sample in samples] == ["yes"] * 3
    (tmp_path / "c.parquet").write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match=r"c\.parquet cannot be read"):
        read(tmp_path / "c.parquet")
