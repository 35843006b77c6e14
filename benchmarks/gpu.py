"""How busy a gate keeps a GPU, and how fast it is beside a bare loop of ``generate``: Qwen2-VL-2B's architecture.

    python benchmarks/gpu.py                           # on a machine with an NVIDIA GPU, some minutes
    python benchmarks/gpu.py --size 1344x1008 --samples 32
    python benchmarks/gpu.py --small --device cpu      # the program on any machine: the embedded model's sizes
    python benchmarks/gpu.py --device-map auto --adapter    # the same model, placed by accelerate, and with a LoRA adapter

The weights are drawn by chance, so that answers mean nothing; sizes, types and work are those of the published model, and the
tokenizer is that of the embedded one. The gate reads JPEG files, perturbs, digests and preprocesses pictures, asks, and stores
and scores answers, from an empty store. The bare loop finds its inputs prepared in memory, as float32 as the library's processor
makes them, copies each batch to the device and calls ``generate`` for one token, with nothing else to do. The usual loop has the
library's processor make its inputs, batch by batch, from pictures in memory. Both ask batches of the gate: the bare loop the
first ones, twice, and the usual loop the first four.

"busy" is the share of time in which a kernel ran on the device. The mean of what ``nvidia-smi`` samples ten times a second says
it of whole runs. The times of kernels and copies that CUDA's profiler reports, overlaps counted once, say it of a shorter run of
four settings, which the profiler slows down. The program ends with 1 where the gate keeps the device busy for less than the
goal, and where nobody can tell.

With ``--device-map`` or ``--adapter``, gates are run one after the other: of the model as it is, with that ``device_map``, and
with a random adapter that peft makes. Each is then asked the first batches again, and the program ends with 1 where placement
changes an answer, or the adapter changes none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copy, which
from typing import Any, NamedTuple

import cv2
import torch
from measuring import drawn
from overhead import SETTINGS as OVERHEAD
from overhead import Recorded, gate
from PIL import Image

from pytest_vlmrobust.backends import BackendOptions, resolve
from pytest_vlmrobust.backends.answering import Job
from pytest_vlmrobust.backends.loading import ModelSource, load_image_processor
from pytest_vlmrobust.backends.transformers import TransformersBackend
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions

GOAL = 0.95
SETTINGS = tuple(name for name in OVERHEAD if name != "no_image")
TINY = Path(resolve("tiny").location)
TEXT: dict[str, Any] = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}
VISION = {"depth": 32, "embed_dim": 1280, "hidden_size": 1536, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14}
"""As in ``config.json`` of Qwen2-VL-2B-Instruct."""
SAMPLE_SECONDS = 0.1
COMPARED_BATCHES = 8
"""How many batches are asked again to compare answers."""
BARE_BATCHES = 24
"""How many batches the bare loop answers, twice: their inputs wait in memory."""


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints what was found.

    Returns:
        The exit status: 1 where the device is busy for less than the goal, or nobody can tell; else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="640x480", help="of the pictures, in pixels")
    parser.add_argument("--samples", type=int, default=128, help="of each cell")
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many, of those of overhead.py")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="threads that prepare requests ahead")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="the embedded model's sizes in place of the published one's")
    parser.add_argument("--device-map", default="", help="also run a gate with this device_map, such as auto")
    parser.add_argument("--adapter", action="store_true", help="also run a gate with a random LoRA adapter")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.samples, options.settings, options.batch_size) < 1:
        parser.error("--rounds, --samples, --settings and --batch-size: expected 1 or more")
    with tempfile.TemporaryDirectory() as folder:
        return _measured(Path(folder), options)


def _measured(folder: Path, options: argparse.Namespace) -> int:
    checkpoint = TINY if options.small else write_checkpoint(folder / "model", options.device)
    questions = write_questions(folder / "questions", options)
    ref = resolve(str(checkpoint), dtype="bfloat16")
    if options.device_map or options.adapter:
        refs = {"plain": ref}
        if options.device_map:
            refs["device_map"] = dataclasses.replace(ref, device_map=options.device_map)
        if options.adapter:
            refs["adapter"] = dataclasses.replace(ref, adapter=str(write_adapter(folder / "adapter", checkpoint)))
        return _compared(refs, str(questions), options)
    backend = Recorded(ref, BackendOptions(device=options.device, batch_size=options.batch_size))
    backend.infer([Request("", (), "Is it?")])
    print(f"torch {torch.__version__}: {json.dumps(backend.describe()['loaded'])}", flush=True)
    cells = [Cell("random", "questions", Setting.parse(setting)) for setting in SETTINGS[: options.settings]]
    evaluation = EvaluationOptions(batch_size=options.batch_size, threads=options.threads)
    gates: list[Run] = []
    batches: list[list[Request]] = []
    ratios = []
    for _ in range(options.rounds):
        backend.batches.clear()
        count = options.samples * len(cells)
        gates.append(_run("gate", count, options.device, lambda: gate(backend, cells, str(questions), evaluation)))
        batches = backend.batches[:BARE_BATCHES]
        ratios.append(gates[-1].speed / _bare(backend, batches, options.device).speed)
    _usual(backend, batches[:4], checkpoint, options.device)
    print(f"lanes in the gate: {backend.lanes}; it answers {statistics.median(ratios):.2f} times as many as the bare loop")
    shares = [gate.busy for gate in gates if gate.busy is not None]
    if not shares or not torch.cuda.is_available():
        print("not measured: no GPU, or no nvidia-smi, was found")
        return 1
    exact = _by_profiler(lambda: gate(backend, cells[:4], str(questions), evaluation))
    print(f"by CUDA's profiler, in a gate of 4 settings, from the first kernel to the last: busy {exact:.1%}")
    share = statistics.median(shares)
    verdict = "PASS" if share >= GOAL else "FAIL"
    print(f"{verdict}  the device is busy {share:.1%} of the gate's time (expected: at least {GOAL:.0%})")
    return 0 if share >= GOAL else 1


def _compared(refs: dict[str, ModelRef], questions: str, options: argparse.Namespace) -> int:
    """Runs a gate of each model, and compares what they answer to the first batches of the first one."""
    cells = [Cell("random", "questions", Setting.parse(setting)) for setting in SETTINGS[: options.settings]]
    evaluation = EvaluationOptions(batch_size=options.batch_size, threads=options.threads)
    requests: list[Request] = []
    answers: dict[str, list[Prediction]] = {}
    for name, ref in refs.items():
        backend = Recorded(ref, BackendOptions(device=options.device, batch_size=options.batch_size))
        backend.infer([Request("", (), "Is it?")])
        backend.batches.clear()
        print(f"{name}: {json.dumps(backend.describe()['loaded'])}", flush=True)
        _run(name, options.samples * len(cells), options.device, lambda: gate(backend, cells, questions, evaluation))  # noqa: B023
        requests = requests or [request for batch in backend.batches[:COMPARED_BATCHES] for request in batch]
        answers[name] = backend.infer(requests)
        TransformersBackend.close(backend)
    if failed := [answer.error for some in answers.values() for answer in some if answer.error]:
        print(f"FAIL  {len(failed)} answers failed, such as {failed[0]}")
        return 1
    plain, passed = answers.pop("plain"), True
    for name, others in answers.items():
        equal = sum(answer.logprobs == other.logprobs for answer, other in zip(others, plain, strict=True))
        holds = equal == len(plain) if name == "device_map" else equal < len(plain)
        passed &= holds
        print(f"{'PASS' if holds else 'FAIL'}  {name}: {equal} of {len(plain)} answers are equal to those without it")
    return 0 if passed else 1


def write_adapter(folder: Path, checkpoint: Path) -> Path:
    """Writes a LoRA adapter of random numbers, and returns its directory."""
    import peft
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.bfloat16)
    config = peft.LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "qkv"], init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(folder)
    return folder


def write_checkpoint(folder: Path, device: str) -> Path:
    """Writes a checkpoint of Qwen2-VL-2B's sizes with weights drawn by chance, and returns where it is."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    folder.mkdir()
    for file in TINY.iterdir():
        if file.suffix in (".json", ".jinja") and file.name != "config.json":
            copy(file, folder)
    images = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    images |= {"patch_size": 14, "size": {"shortest_edge": 3136, "longest_edge": 12845056}}
    (folder / "preprocessor_config.json").write_text(json.dumps(images), encoding="utf-8")
    known = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
    text = {**known["text_config"], **TEXT, "layer_types": ["full_attention"] * TEXT["num_hidden_layers"]}
    vision = {**known["vision_config"], **VISION, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "axial"}}
    config = {**known, "text_config": text, "vision_config": vision}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return folder


def write_questions(folder: Path, options: argparse.Namespace) -> Path:
    """Writes questions about drawn pictures, and returns the file of them."""
    width, height = map(int, options.size.split("x"))
    folder.mkdir()
    rows = []
    for number in range(options.samples):
        cv2.imwrite(str(folder / f"{number}.jpg"), drawn((width, height), number), (cv2.IMWRITE_JPEG_QUALITY, 90))
        row = {"id": str(number), "image": f"{number}.jpg", "question": "Which colour is most of it?"}
        rows.append({**row, "options": ["red", "green", "blue", "grey"], "answer": "A"})
    file = folder / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


def _bare(backend: Recorded, batches: Sequence[Sequence[Request]], device: str) -> Run:
    """Times ``generate`` of transformers on prepared inputs, and nothing else."""
    lanes = backend._ready()  # noqa: SLF001 - the same forwards, without what stands around them
    model = lanes.answerer._loaded.model  # noqa: SLF001 - as above
    images = lanes.answerer._loaded.processor.image_processor  # noqa: SLF001 - as above
    prepared = [_inputs(lanes.answerer, requests, images) for requests in batches]

    def loop() -> None:
        for inputs in prepared * 2:
            _generate(model, inputs, device)

    return _run("bare loop", 2 * sum(map(len, batches)), device, loop)


def _usual(backend: Recorded, batches: Sequence[Sequence[Request]], checkpoint: Path, device: str) -> None:
    """Times a loop that has the library's processor prepare each batch, and ``generate`` answer it."""
    loaded = backend._ready().answerer._loaded  # noqa: SLF001 - as above
    usual = load_image_processor(ModelSource(str(checkpoint)), "pil")

    def loop() -> None:
        for requests in batches:
            pictures = [Image.fromarray(image) for request in requests for image in request.images]
            made = usual(pictures, return_tensors="pt")
            _generate(loaded.model, {**_inputs(backend._ready().answerer, requests, None), **made}, device)  # noqa: SLF001

    _run("usual loop", sum(map(len, batches)), device, loop)


def _inputs(answerer: Any, requests: Sequence[Request], images: Any) -> dict[str, Any]:
    """Returns the tensors of a batch on the CPU, with numbers for its pictures where a processor is given to make them."""
    jobs = [Job(0, request, answerer.letters(request.choices), inputs=answerer.row(request)) for request in requests]
    inputs = dict(answerer.encoded(jobs)[0])
    if images is not None and not isinstance(inputs["pixel_values"], torch.Tensor):
        inputs["pixel_values"] = inputs["pixel_values"].on("cpu", torch.float32)
    return inputs


def _generate(model: Any, inputs: dict[str, Any], device: str) -> None:
    there = {
        name: values.to(device, dtype=model.dtype if values.is_floating_point() else None) for name, values in inputs.items()
    }
    with torch.inference_mode():
        model.generate(**there, max_new_tokens=1, do_sample=False).tolist()


# How busy a device is.


class Run(NamedTuple):
    """How fast something was."""

    speed: float
    """Pictures a second."""
    busy: float | None
    """Share of time that the device was busy; None where it was not measured."""


def _run(what: str, count: int, device: str, call: Callable[[], object]) -> Run:
    """Runs something that answers questions about so many pictures, and prints how fast it was."""
    with _sampled(device) as samples:
        clock, processor = time.perf_counter(), time.process_time()
        call()
        seconds, processor = time.perf_counter() - clock, time.process_time() - processor
    result = Run(count / seconds, statistics.mean(samples) / 100 if samples else None)
    busy = "not measured" if result.busy is None else f"{result.busy:.1%}"
    print(
        f"{what:<11}{result.speed:8.1f} pictures/s {seconds:7.1f} s {processor:7.1f} s of the processor   busy {busy}", flush=True
    )
    return result


@contextmanager
def _sampled(device: str) -> Iterator[list[float]]:
    """Yields a list; when the block has ended, it holds the percentages of time that a kernel ran, as nvidia-smi samples them."""
    percentages: list[float] = []
    if which("nvidia-smi") is None or not device.startswith("cuda"):
        yield percentages
        return
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    ask = ["nvidia-smi", "-i", name, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    ask += ["-lms", str(round(1000 * SAMPLE_SECONDS))]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - a constant command
        if process.stdout is not None:
            process.stdout.readline()  # it has begun
        yield percentages
        process.terminate()
        percentages += [float(line) for line in (process.stdout or ()) if line.strip().isdigit()]


def _by_profiler(call: Callable[[], object]) -> float:
    """Returns the share of time that a kernel or a copy ran on the device, from the first to the last of them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events: Any = profile.profiler.kineto_results.events()
    spans = sorted((event.start_ns(), event.end_ns()) for event in events if event.device_type().name == "CUDA")
    busy, end = 0.0, spans[0][0]
    for begin, last in spans:
        busy += max(0, last - max(begin, end))
        end = max(end, last)
    return float(busy / (end - spans[0][0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
