"""Names and what they stand for: `vlmrobust list`, `explain`, `show` and `data`."""

from __future__ import annotations

import ctypes
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.errors import UsageError, typed_path
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED, derive_seed
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.core.words import on_one_line, printable, quantity

from .arguments import DataFolder, Seed, complain, number, path, say, tell

if TYPE_CHECKING:
    from pytest_vlmrobust.core.prediction import ModelRef

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""The numbers of three settings of glibc, from its malloc.h."""


# `vlmrobust list` and `vlmrobust explain`.


Kind = Literal["datasets", "metrics", "models", "settings"]


def list_(kind: Annotated[Kind, Argument(help="what to list")]) -> int:
    """List models, datasets, settings or metrics by name.

    Examples:
        vlmrobust list models
        vlmrobust list settings
    """
    for name in _LISTS[kind]():
        say(name)
    return 0


def explain(metric: Annotated[str, Argument(help="a metric", show_default="list all of them")] = "") -> int:
    """Explain a metric: formula, source, bounds, interval, and when not to use it.

    Examples:
        vlmrobust explain
        vlmrobust explain worst_case_drop
    """
    from pytest_vlmrobust.evaluation.judge.measurements import quantities, quantity
    from pytest_vlmrobust.metrics.estimation import describe

    if metric:
        say(describe(quantity(metric).facts).text(min(100, shutil.get_terminal_size().columns)))
        return 0
    metrics = quantities()
    for name in sorted(metrics):
        say(f"{name:<{max(map(len, metrics))}}  {describe(metrics[name].facts).summary}")
    return 0


def _models() -> list[str]:
    from pytest_vlmrobust.backends.models_file import HEADER, PUBLISHED, described
    from pytest_vlmrobust.backends.resolve import MODELS

    installed = [_of_package(MODELS.get(name)(), MODELS.owner(name)) for name in MODELS.names()]
    rows = [HEADER, *installed, *(described(*entry) for entry in PUBLISHED.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, "weights are parameters, as the name says them, x bytes: arithmetic, without activations and caches"]


def _of_package(model: ModelRef, package: str) -> tuple[str, ...]:
    stored = sum(file.stat().st_size for file in Path(model.location).glob("*.safetensors"))
    size = f"{stored / 1e9:.2g} as stored" if stored else "not known"
    return model.name, "", size, "", model.prompt_mode, f"comes with {package}"


def _datasets() -> list[str]:
    from pytest_vlmrobust.datasets import names

    return list(names())


def _settings() -> list[str]:
    from pytest_vlmrobust import perturbations

    return perturbations.names("all")


def _metrics() -> list[str]:
    from pytest_vlmrobust.evaluation.judge.measurements import quantities

    return sorted(quantities())


_LISTS: dict[Kind, Callable[[], list[str]]] = {
    "models": _models,
    "datasets": _datasets,
    "settings": _settings,
    "metrics": _metrics,
}


# `vlmrobust show`.


def show(
    image: Annotated[
        Path,
        Argument(
            metavar="IMAGE|DATA",
            parser=typed_path,
            help="an image, such as a PNG, JPEG or WebP file; or data, as after --vlm-dataset",
        ),
    ],
    *,
    out: Annotated[Path | None, path("what to write for an image: FILE.html")] = None,
    sets: Annotated[list[str] | None, Option("--set", metavar="NAME", help="a set of settings, or all; repeatable")] = None,
    settings: Annotated[
        list[str] | None, Option("--setting", metavar="SETTING", help="a setting, such as fog:mid+flip_h; repeatable")
    ] = None,
    seed: Seed = AUGMENTATION_SEED,
    tile: Annotated[int, number("pixels", "width of a tile", "PIXELS")] = 200,
) -> int:
    """Draw one image under many settings: a contact sheet in HTML; print a question under settings that change it.

    Examples:
        vlmrobust show photo.jpg --set robustbench --out photo.html
        vlmrobust show photo.jpg --setting fog:mid+flip_h --out fog.html
        vlmrobust show questions.jsonl --setting option_order:1
    """
    from pytest_vlmrobust.perturbations.gallery import show as draw
    from pytest_vlmrobust.perturbations.questions import split

    parsed = [Setting.parse(setting) for setting in settings or ()]
    changing = [setting for setting in parsed if split(setting)[0]]
    if changing and len(changing) == len(parsed) and not sets and not out:
        return _show_questions(str(image), changing, seed)
    if changing:
        raise UsageError(
            f"setting '{changing[0]}' changes the question, which no contact sheet shows. "
            f"Print it with data in place of an image and without --out: vlmrobust show questions.jsonl --setting {changing[0]}"
        )
    if not out:
        raise UsageError(f"--out is missing: what to write of {image}. Expected a name that ends in .html")
    begun = time.perf_counter()
    _keep_freed_memory()
    with _progress_bar(f"drawing {image.name}") as progress:
        made = draw(image, out, sets=sets or (), settings=settings or (), seed=seed, tile=tile, progress=progress)
    say(f"{out}: {quantity(made.count, 'setting')} in {time.perf_counter() - begun:.1f} s")
    return 0


def _show_questions(data: str, settings: Sequence[Setting], seed: int) -> int:
    """Prints the first question that each setting changes, before and after, as shown to a model."""
    from pytest_vlmrobust.datasets import resolve
    from pytest_vlmrobust.evaluation.run.prompts import prompt
    from pytest_vlmrobust.perturbations import perturbed
    from pytest_vlmrobust.perturbations.questions import split

    samples, printed = resolve(data).samples(), None
    for setting in settings:
        pairs = ((q, perturbed(q, setting, seed=derive_seed(seed, q.seeded_by or q.id))) for q in samples)
        before, after = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
        if before is None or after is None:
            say(f"{setting} changes none of the {quantity(len(samples), 'question')} of {data}")
            continue
        for sample, name in ((before, "clean"), (after, str(setting))):
            if sample is not printed:
                text = prompt(sample, "direct").replace(IMAGE_MARK, "[image]")
                say(f"--- {before.id}, {name}: {' or '.join(sample.targets)} is right\n{text}\n")
        printed = before
        images = [str(split(setting)[1])] if split(setting)[1] != CLEAN else []
        if images or before.images != after.images:
            say(f"--- the image changes, too: {', '.join(images) or 'after a run, vlmrobust view shows it'}\n")
    return 0


@contextmanager
def _progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Draws a progress bar on standard error if it is a terminal; yields the function that updates it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(escape(printable(label)), total=None)
        yield lambda made, of: bar.update(task, completed=made, total=of)


def _keep_freed_memory() -> None:
    """Makes the C library, if it is glibc, keep the memory freed by large images.

    Otherwise it returns every array of more than 32 MiB to the kernel, which clears the same memory for the next array: half of
    the processor time at 4000 x 3000 pixels.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_ARENA_MAX, 1)  # the arenas of threads cannot hold blocks of that size
        library.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


# `vlmrobust data`.


NAMED = 20
"""Maximum number of unreadable images to name."""


def data(
    file: Annotated[str, Argument(help="as after --vlm-dataset: a path, an embedded name, a benchmark, hf:ID")],
    *,
    folder: DataFolder = None,
    out: Annotated[Path | None, path("draw the first twenty questions on one page: PAGE.html", "PAGE")] = None,
) -> int:
    """Describe a dataset and how it would be scored, and draw its first questions.

    Examples:
        vlmrobust data my_questions.jsonl --out questions.html
        vlmrobust data MMBench_DEV_EN --data /data/LMUData
    """
    from pytest_vlmrobust.datasets import resolve
    from pytest_vlmrobust.evaluation.run.profile import profile

    if out and out.suffix.lower() not in {".html", ".htm"}:
        raise UsageError(f"--out {out} is no page. Expected a name that ends with .html")
    overview = profile(resolve(file, data_dir=folder))
    widest = max(len(name) for name, _ in overview.facts)
    for name, fact in overview.facts:
        tell(f"{name:<{widest}}  {on_one_line(fact)}")
    for note in overview.notes:
        tell(f"note: {on_one_line(note, None)}")
    if out:
        from pytest_vlmrobust.reporting.html.page import render_questions
        from pytest_vlmrobust.reporting.writing import write_out

        write_out(out, render_questions(overview))
        say(f"{out}: {quantity(len(overview.questions), 'question')} drawn")
    if overview.refusal:
        complain(f"a run with these data is refused: {overview.refusal}")
    if overview.unread:
        count = quantity(len(overview.unread), "image")
        more = [f"… and {len(overview.unread) - NAMED} more"] if len(overview.unread) > NAMED else []
        raise UsageError("\n  ".join([f"{count} cannot be read; mend or remove these rows:", *overview.unread[:NAMED], *more]))
    return int(bool(overview.refusal))
