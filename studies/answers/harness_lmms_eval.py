"""Asks a checkpoint through lmms-eval; runs in an environment of its own, for ``harnesses.py``.

    python harness_lmms_eval.py CHECKPOINT FOLDER OUTPUT BATCH_SIZE [CACHE]

``FOLDER`` has a file ``NAME.jsonl`` of questions for each setting, which becomes a task; ``OUTPUT`` gets lmms-eval's own files
of answers, and ``CACHE`` its cache of responses. The model is lmms-eval's ``huggingface``, which loads in bfloat16, with the
weights in float32: its ``qwen2_vl`` turns pictures into JPEG of quality 85 and makes their sides multiples of 28 pixels.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness_shared import float32_model, log_asking, processor
from lmms_eval.models import MODEL_REGISTRY_V2
from lmms_eval.models.chat import huggingface
from lmms_eval.models.registry_v2 import ModelManifest
from PIL import Image

TASK = """
task: "{name}"
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{file}"}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function harness_lmms_eval.pictures
doc_to_text: !function harness_lmms_eval.prompt
doc_to_target: "target"
generation_kwargs: {{max_new_tokens: 1, temperature: 0, do_sample: false}}
process_results: !function harness_lmms_eval.scored
metric_list: [{{metric: right, aggregation: mean, higher_is_better: true}}]
metadata: [{{version: 0.0}}]
"""


class Float32(huggingface.Huggingface):  # type: ignore[misc]  # its base has no types
    """lmms-eval's model of any checkpoint, in float32 on the CPU."""

    def __init__(self, pretrained: str, **named: Any) -> None:
        huggingface.AutoProcessor = SimpleNamespace(from_pretrained=processor)
        super().__init__(pretrained, device="cpu", device_map="cpu", **named)
        self._model = float32_model(pretrained)


def pictures(row: dict[str, Any]) -> list[Image.Image]:
    """Returns the picture of a question."""
    return [Image.open(row["picture"]).convert("RGB")]


def prompt(row: dict[str, Any], _options: object = None) -> str:
    """Returns the text of a question."""
    return str(row["prompt"])


def scored(row: dict[str, Any], answers: list[str]) -> dict[str, float]:
    """Returns whether the answer is the right one."""
    return {"right": float(answers[0].strip() == row["target"])}


def main(checkpoint: str, folder: str, output: str, batch_size: str, cache: str = "") -> None:
    """Runs lmms-eval's own command in this process."""
    from lmms_eval.__main__ import cli_evaluate

    names = [file.stem for file in sorted(Path(folder).glob("*.jsonl"))]
    tasks = Path(output, "tasks")
    tasks.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = TASK.format(name=name, file=Path(folder, f"{name}.jsonl"))
        (tasks / f"{name}.yaml").write_text(text, encoding="utf-8")
    MODEL_REGISTRY_V2.register_manifest(ModelManifest("float32", chat_class_path="harness_lmms_eval.Float32"))
    log_asking()
    sys.argv = ["lmms_eval", "--model=float32", f"--model_args=pretrained={checkpoint}", f"--tasks={','.join(names)}"]
    sys.argv += [f"--include_path={tasks}", f"--batch_size={batch_size}", "--log_samples", f"--output_path={output}"]
    sys.argv += [f"--use_cache={cache}"] if cache else []
    cli_evaluate()


if __name__ == "__main__":
    main(*sys.argv[1:])
