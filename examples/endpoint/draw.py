"""Draws the questions: 60 plain pictures, each in a colour of its own shade."""

import json
from pathlib import Path

from PIL import Image

COLOURS = ("red", "green", "blue")

folder = Path("pictures")
folder.mkdir(exist_ok=True)
rows = []
for number in range(60):
    shade = [40, 40, 40]
    shade[number % 3] = 150 + number
    Image.new("RGB", (64, 64), tuple(shade)).save(folder / f"{number}.png")
    question = {"question": "Which colour is it?", "options": COLOURS, "answer": "ABC"[number % 3]}
    rows.append({"id": f"q{number}", "image": f"pictures/{number}.png", **question})
Path("colours.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
