"""Trains the embedded model `tiny` on 2 CPU cores: `python studies/training/train.py --out studies/training/runs/1`.

Four stages; the first two are independent and run side by side, one core each:

language   the language model alone. Image tokens are written in words (sums of word embeddings laid out as the picture is).
           First the answer is given away in the question, so that options are matched to words; then less and less.
vision     the vision tower alone, taught to say per image token what the language stage's stand-ins say, at mixed resolutions.
joint      both, end to end, on drawn pictures.
observatory  three layers below the language model's learn to compare pictures; see observatory.py. From the joint stage's result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from checkpoint import build_config, build_tokenizer, processor_files
from comparing import deepened
from network import Optimizers, read, see
from observatory import COMPARE_SHARE, Observatory
from portable import portable
from rows import Anchors, Batch, Packer, Picture, pictures, pixels
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration

FROZEN_SHARE = 0.75
"""Share of the joint stage in which the vision tower stands still: a large step of it undoes what it has learned."""
GRIDS, GRID_SHARES = (4, 3, 5, 6, 2), (0.70, 0.10, 0.10, 0.05, 0.05)


class Bench:
    """What every stage needs: tokenizer, model, anchors, log."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.set_num_threads(arguments.threads)
        torch.manual_seed(arguments.seed)
        self.out: Path = arguments.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.seed: int = arguments.seed
        self.tokenizer = build_tokenizer()
        config = build_config(self.tokenizer)
        self.model = Qwen2VLForConditionalGeneration(config).float()
        self.packer = Packer(self.tokenizer)
        self.anchors = Anchors(self.tokenizer, config.text_config.hidden_size, seed=arguments.seed)
        embedding = self.model.model.language_model.embed_tokens.weight
        with torch.no_grad():
            embedding.normal_(0, embedding.shape[1] ** -0.5)
            embedding[self.anchors.token_ids] = self.anchors.vectors[: len(self.anchors.token_ids)]
        self.started = time.monotonic()
        self.log_file = self.out / f"{arguments.stage}.jsonl"

    def log(self, **facts: object) -> None:
        line = json.dumps({"seconds": round(time.monotonic() - self.started), **facts})
        print(line, flush=True)
        with self.log_file.open("a") as stream:
            stream.write(line + "\n")

    def stand_in(self, batch: list[Picture], grid: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what the image tokens should say: anchor weights (B, tokens, anchors) and vectors (B, tokens, hidden)."""
        weights = torch.from_numpy(np.stack([self.anchors.weights(picture, grid) for picture in batch]))
        return weights, weights @ self.anchors.vectors


class Meter:
    """Running accuracy per kind of question since the last report."""

    def __init__(self) -> None:
        self.hits: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def add(self, batch: Batch, logits: torch.Tensor) -> None:
        right = (logits.argmax(-1) == batch.target).tolist()
        for i, (role, hit) in enumerate(zip(batch.role.tolist(), right, strict=True)):
            if role != 1:
                name = batch.kinds[batch.question[i]] if role == 0 else "open" if role == 2 else "match"
                self.hits[name][0] += hit
                self.hits[name][1] += 1

    def report(self) -> dict[str, float]:
        out = {name: round(hit / n, 3) for name, (hit, n) in sorted(self.hits.items())}
        self.hits.clear()
        return out


def loss_of(batch: Batch, logits: torch.Tensor) -> torch.Tensor:
    each = functional.cross_entropy(logits, batch.target, reduction="none")
    return (each * batch.weight).sum() / (batch.role == 0).sum()


def schedule(progress: float, warm: float = 0.02, cool: float = 0.35) -> float:
    """Rises for 2 % of the time, stays, falls to 0 over the last 35 %."""
    return min(1.0, progress / warm, max(0.02, (1 - progress) / cool))


def language(bench: Bench, minutes: float, resume: str | None) -> None:
    """Stage 1: letters and lookup, with image tokens written in words."""
    rng = np.random.default_rng([bench.seed, 1])
    text = bench.model.model.language_model
    for parameter in bench.model.model.visual.parameters():
        parameter.requires_grad_(False)
    if resume:
        bench.model.load_state_dict(torch.load(resume, weights_only=True))
    optimizers, meter = Optimizers(text, 0.02, 2e-3), Meter()
    frozen = torch.tensor(bench.anchors.token_ids)
    source = pictures(rng, evaluation=False, per_picture=6, words=0.22)
    seconds, step, hint, smooth, saved = minutes * 60, 0, 0.05 if resume else 1.0, 0.25, 0.0
    while (elapsed := time.monotonic() - bench.started) < seconds:
        matching = hint == 1.0
        grid = 0 if matching else int(rng.choice(GRIDS, p=GRID_SHARES))
        rows = list(islice(source, 24))
        batch = bench.packer.pack(rows, grid=grid, hint=hint, rng=rng)
        tokens = None
        if grid:
            tokens = bench.stand_in(rows, grid)[1]
            tokens = tokens + torch.randn_like(tokens) * 0.04
        logits = read(bench.model, batch, tokens)
        loss = loss_of(batch, logits)
        loss.backward()
        text.embed_tokens.weight.grad[frozen] = 0
        optimizers.step(schedule(elapsed / seconds))
        meter.add(batch, logits.detach())
        letters = float((logits.argmax(-1) == batch.target)[batch.role == 0].float().mean())
        smooth = 0.95 * smooth + 0.05 * letters
        if matching and smooth > 0.94:
            hint = 0.3
            bench.log(event="letters are matched", step=step)
        elif not matching:
            hint = 0.05 if resume else max(0.05, 0.3 * (1 - elapsed / seconds))
        step += 1
        if step % 50 == 0:
            bench.log(step=step, loss=round(loss.item(), 3), hint=round(hint, 2), **meter.report())
        if time.monotonic() - saved > 120:
            saved = time.monotonic()
            torch.save(bench.model.state_dict(), bench.out / "language.pt")
    torch.save(bench.model.state_dict(), bench.out / "language.pt")


def vision(bench: Bench, minutes: float, resume: str | None) -> None:
    """Stage 2: image tokens say what is where."""
    rng = np.random.default_rng([bench.seed, 2])
    tower = bench.model.model.visual
    if resume:
        bench.model.load_state_dict(torch.load(resume, weights_only=True))
    optimizers = Optimizers(tower, 0.02, 2e-3)
    source = pictures(rng, evaluation=False, per_picture=1, words=0.4)
    seconds, step, seen = minutes * 60, 0, defaultdict[str, list[float]](list)
    while (elapsed := time.monotonic() - bench.started) < seconds:
        grid = int(rng.choice(GRIDS, p=GRID_SHARES))
        rows = list(islice(source, 32))
        said = see(bench.model, pixels(rows, grid, rng, augment=True))
        weights, wanted = bench.stand_in(rows, grid)
        loss, facts = vision_loss(bench.anchors, said, weights, wanted)
        loss.backward()
        optimizers.step(schedule(elapsed / seconds))
        step += 1
        for name, value in facts.items():
            seen[name].append(value)
        if step % 50 == 0:
            bench.log(step=step, loss=round(loss.item(), 3), **{k: round(float(np.nanmean(v)), 3) for k, v in seen.items()})
            seen.clear()
    torch.save(bench.model.state_dict(), bench.out / "vision.pt")


def vision_loss(
    anchors: Anchors, said: torch.Tensor, weights: torch.Tensor, wanted: torch.Tensor
) -> tuple[torch.Tensor, dict[str, float]]:
    """Distance to the stand-in, plus a choice among colours, shapes, words, places, directions where there is one."""
    loss = functional.mse_loss(said, wanted, reduction="none").sum(-1).mean()
    scores = said @ anchors.vectors.T
    facts: dict[str, float] = {"distance": loss.item()}
    for name, group in anchor_groups(anchors).items():
        chosen = weights[..., group]
        best, index = chosen.max(-1)
        where = best > 0.6
        if where.any():
            picked = scores[..., group][where]
            loss = loss + 0.5 * functional.cross_entropy(picked * 8, index[where])
            facts[name] = float((picked.argmax(-1) == index[where]).float().mean())
    return loss, facts


def anchor_groups(anchors: Anchors) -> dict[str, list[int]]:
    from pytest_vlmrobust.demo import scenes, words

    names = {
        "color": list(scenes.COLORS),
        "shape": list(scenes.SHAPES),
        "word": list(words.WORDS),
        "row": ["top", "bottom"],
        "column": ["left", "right"],
        "direction": [f"dir:{d}" for d in scenes.DIRECTIONS],
    }
    return {group: [anchors.index[name] for name in members] for group, members in names.items()}


def joint(bench: Bench, minutes: float, resume: str | None) -> None:
    """Stage 3: pixels to letters."""
    rng = np.random.default_rng([bench.seed, 3, int(bool(resume))])
    if resume:
        bench.model.load_state_dict(torch.load(resume, weights_only=True))
    else:
        state = torch.load(bench.out / "language.pt", weights_only=True)
        seen = torch.load(bench.out / "vision.pt", weights_only=True)
        state.update({name: value for name, value in seen.items() if "visual" in name})
        bench.model.load_state_dict(state)
    reader, tower = bench.model.model.language_model, bench.model.model.visual
    language_steps, vision_steps, meter = Optimizers(reader, 0.012, 1e-3), Optimizers(tower, 0.002, 2e-4), Meter()
    source = pictures(rng, evaluation=False, per_picture=6, words=0.25)
    seconds, step, saved = minutes * 60, 0, 0.0
    while (elapsed := time.monotonic() - bench.started) < seconds:
        grid = int(rng.choice(GRIDS, p=GRID_SHARES))
        rows = list(islice(source, 24))
        batch = bench.packer.pack(rows, grid=grid, hint=0.04, rng=rng)
        frozen = elapsed < FROZEN_SHARE * seconds
        with torch.set_grad_enabled(not frozen):
            tokens = see(bench.model, pixels(rows, grid, rng, augment=True))
            dense, facts = vision_loss(bench.anchors, tokens, *bench.stand_in(rows, grid))
        logits = read(bench.model, batch, tokens)
        loss = loss_of(batch, logits) + (0.0 if frozen else 0.3 * dense)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(bench.model.parameters(), 5.0)
        language_steps.step(schedule(elapsed / seconds, cool=0.9))
        if not frozen:
            vision_steps.step(schedule(elapsed / seconds, cool=1 - FROZEN_SHARE))
        meter.add(batch, logits.detach())
        step += 1
        if step % 50 == 0:
            bench.log(step=step, loss=round(loss.item(), 3), **meter.report(), dense={k: round(v, 2) for k, v in facts.items()})
        if time.monotonic() - saved > 300:
            saved = time.monotonic()
            torch.save(bench.model.state_dict(), bench.out / "joint.pt")
    torch.save(bench.model.state_dict(), bench.out / "joint.pt")


def observatory(bench: Bench, minutes: float, resume: str | None) -> None:
    """Stage 4: comparing pictures."""
    bench.model.load_state_dict(torch.load(resume or bench.out / "joint.pt", weights_only=True))
    stage = Observatory(deepened(bench.model), bench.packer, bench.log, bench.seed)
    seconds = minutes * 60
    stage.compare(COMPARE_SHARE * seconds, schedule)
    torch.save(stage.model.state_dict(), bench.out / "compare.pt")
    stage.name((1 - COMPARE_SHARE) * seconds, schedule, loss_of)
    torch.save(stage.model.state_dict(), bench.out / "observatory.pt")


def export(bench: Bench, target: Path) -> None:
    """Writes the checkpoint that ships, of the last stage that there is: portable, half precision, tokenizer, processor."""
    last = bench.out / "observatory.pt"
    model = deepened(bench.model) if last.exists() else bench.model
    model.load_state_dict(torch.load(last if last.exists() else bench.out / "joint.pt", weights_only=True))
    target.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = bench.packer.end
    model.generation_config.pad_token_id = bench.tokenizer.pad_token_id
    portable(model).half().save_pretrained(target)
    bench.tokenizer.save_pretrained(target)
    processor_files(target)


def everything(arguments: argparse.Namespace) -> None:
    """Runs the two independent stages side by side, then the joint one, then writes the checkpoint."""
    base = [sys.executable, __file__, "--out", str(arguments.out), "--seed", str(arguments.seed)]
    first = [
        subprocess.Popen([*base, "--stage", stage, "--minutes", str(arguments.minutes * 0.3)]) for stage in ("language", "vision")
    ]
    if any(process.wait() for process in first):
        raise SystemExit("a stage failed; its messages stand above")
    subprocess.run([*base, "--stage", "joint", "--threads", "2", "--minutes", str(arguments.minutes * 0.4)], check=True)
    subprocess.run([*base, "--stage", "observatory", "--threads", "2", "--minutes", str(arguments.minutes * 0.3)], check=True)
    subprocess.run([*base, "--stage", "export", "--target", str(arguments.target)], check=True)


def main() -> None:
    """Reads the command line and runs a stage, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory for logs and stage results")
    parser.add_argument("--stage", choices=("all", "language", "vision", "joint", "observatory", "export"), default="all")
    parser.add_argument("--minutes", type=float, default=110.0, help="wall-clock budget")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", help="continue from this state")
    parser.add_argument("--target", type=Path, default=Path("pytest_vlmrobust/demo/tiny"), help="where the checkpoint goes")
    arguments = parser.parse_args()
    if arguments.stage == "all":
        everything(arguments)
        return
    bench = Bench(arguments)
    if arguments.stage == "export":
        export(bench, arguments.target)
        return
    stages = {"language": language, "vision": vision, "joint": joint, "observatory": observatory}
    stages[arguments.stage](bench, arguments.minutes, arguments.resume)


if __name__ == "__main__":
    main()
