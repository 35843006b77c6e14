"""Writes a file of questions in the place of yours: pictures whose answer stands in one corner."""

import json
from pathlib import Path

from PIL import Image

from pytest_vlmrobust import datasets

folder = Path("pictures")
folder.mkdir(exist_ok=True)
rows = []
for sample in datasets.resolve("local_cue").samples():
    Image.fromarray(sample.images[0].load()).save(folder / f"{sample.id}.png")
    question = {"question": sample.question, "options": dict(sample.options), "answer": sample.target}
    rows.append({"id": sample.id, "image": f"pictures/{sample.id}.png", **question})
Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
