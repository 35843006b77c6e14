"""How many times as long the library takes as our table to make a Qwen2-VL model's numbers of pictures, and where that time goes.

    OMP_NUM_THREADS=1 python benchmarks/preprocessing.py                   # about a minute
    OMP_NUM_THREADS=1 python benchmarks/preprocessing.py --size 640x480    # one size

Library and table take turns in one process, and the median of CPU time counts: other programs hardly disturb it. Both give the
same bits, which is looked at first; the program ends with 1 where they do not. ``resize`` is what Pillow takes to resize the
picture, which both ways do alike; where a picture has its size already there is none. ``request`` is a whole batch of the
embedded model's requests on its way from picture and text to tensors. Threads are measured by the clock, the best of ten tries:
that ratio means something only where the cores have nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from measuring import THREAD_REPEATS, Call, Size, drawn, medians, warm_allocator
from PIL import Image

from pytest_vlmrobust.backends import resolve
from pytest_vlmrobust.backends.chat import message
from pytest_vlmrobust.backends.loading import ModelSource, load_image_processor, load_processor, quiet
from pytest_vlmrobust.backends.qwen_images import accelerated, preprocessing_of

SIZES: tuple[Size, ...] = ((160, 160), (224, 224), (448, 448), (640, 480), (1344, 1008))
PATCHES = {"Qwen2-VL, Qwen2.5-VL": 14, "Qwen3-VL": 16}
BATCH = 16
QUESTION = "Which shape is red?\nA. circle\nB. square\nC. triangle\nD. star\nAnswer with one letter."


def main(arguments: Sequence[str]) -> int:
    """Measures and prints what the arguments ask for.

    Returns:
        The exit status: 1 where the two ways differ in a bit, else 0.
    """
    options = _options(arguments)
    cv2.setNumThreads(1)
    warm_allocator()
    print(f"{'CPU ms a picture':46}{'library':>9}{'table':>9}{'ratio':>8}{'resize':>9}{'ratio without it':>18}")
    same = [_row(name, processor, size) for name, processor in _processors().items() for size in options.size]
    _print_requests()
    _print_threads()
    return 0 if all(same) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", nargs="+", type=_size, default=SIZES, metavar="WxH", help="sizes of the picture")
    return parser.parse_args(arguments)


def _size(text: str) -> Size:
    width, height = map(int, text.split("x"))
    return width, height


def _processors() -> dict[str, Any]:
    """Returns the library's image processors: the embedded model's, and those of published ones as they are set there."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    limits = {"shortest_edge": 56 * 56, "longest_edge": 12845056}
    published = {name: Qwen2VLImageProcessorPil(size=limits, patch_size=side) for name, side in PATCHES.items()}
    with quiet():
        return {"tiny": load_image_processor(ModelSource(resolve("tiny").location), "pil"), **published}


def _row(name: str, library: Any, size: Size) -> bool:
    """Prints one row; returns whether both ways gave the same bits."""
    fast, picture = accelerated(library), Image.fromarray(drawn(size))
    expected, actual = (each(picture, return_tensors="np") for each in (library, fast))
    same = preprocessing_of(fast) == "fast" and all(expected[key].tobytes() == actual[key].tobytes() for key in expected)
    _, down, across = (int(count) * library.patch_size for count in expected["image_grid_thw"][0])
    calls: dict[str, Call] = {
        "library": lambda _: library(picture, return_tensors="pt"),
        "table": lambda _: fast(picture, return_tensors="pt"),
        "resize": lambda _: picture.resize((across, down), library.resample),
    }
    took = medians(calls)
    resize = took["resize"] if (across, down) != size else 0.0
    rest = (took["library"] - resize) / (took["table"] - resize)
    what = f"{name} {size[0]}x{size[1]} to {across}x{down}"
    ratio = took["library"] / took["table"]
    bits = "" if same else "  THE BITS DIFFER"
    print(f"{what:46}{took['library']:9.2f}{took['table']:9.2f}{ratio:8.1f}{resize:9.2f}{rest:18.1f}{bits}")
    return same


def _print_requests() -> None:
    with quiet():
        processor = load_processor(ModelSource(resolve("tiny").location), "pil")
    library = processor.image_processor
    ways = {"library": library, "table": accelerated(library)}
    pictures = [np.roll(drawn((160, 160)), shift, axis=0) for shift in range(BATCH)]
    conversations = [[message([picture], QUESTION)] for picture in pictures]

    def encode(way: str) -> Any:
        processor.image_processor = ways[way]
        return processor.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
        )

    with quiet():
        took = medians({way: lambda _, way=way: encode(way) for way in ways})  # type: ignore[misc]  # a lambda with a default
    print(
        f"\nrequest, tiny 160x160, in batches of {BATCH}: {took['library'] / BATCH:.2f} ms by the library, "
        f"{took['table'] / BATCH:.2f} by the table, ratio {took['library'] / took['table']:.1f}"
    )


def _print_threads() -> None:
    processors = _processors()
    library = processors[next(iter(PATCHES))]
    fast, pictures = accelerated(library), [Image.fromarray(drawn((640, 480), seed)) for seed in range(8)]
    for name, processor in (("library", library), ("table", fast)):
        single, double = (_seconds(processor, pictures, threads) for threads in (1, 2))
        print(f"{name}, 640x480, by the clock: two threads {single / double:.2f} times as fast as one")


def _seconds(processor: Any, pictures: Sequence[Image.Image], threads: int) -> float:
    def once() -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda picture: processor(picture, return_tensors="np"), pictures))
        return time.perf_counter() - started

    return min(once() for _ in range(THREAD_REPEATS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
