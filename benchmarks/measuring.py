"""How long calls take: on one thread in CPU time, on several by the clock."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from peers import Filter, Peer

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations.blur import disk_kernel

Image = NDArray[np.uint8]
Size = tuple[int, int]
"""Width and height."""
Call = Callable[[int], object]
"""What is timed, given a number that differs from call to call."""

SEED = 1234
CALLS_IN_TURN = 3
LEAST_TURNS, MOST_TURNS = 3, 20
ENOUGH = 150.0
"""Milliseconds of a call after which the least number of turns will do."""
THREAD_REPEATS = 10
ALLOCATION = 31 << 20
"""Bytes; the GNU C library learns from freed blocks of up to 32 MiB."""


@dataclass(frozen=True)
class Row:
    """The times of one setting on one picture, in milliseconds."""

    setting: str
    ours: float
    floor: float
    """One pass of OpenCV over the same bytes, or the passes that the law itself asks for; see :func:`floors`."""
    theirs: dict[str, float]
    """By the name of the peer; without those that have no such thing."""

    def ratio(self, peer: str) -> float:
        """Returns how many times as long the peer takes; NaN where it has no such thing."""
        return self.theirs.get(peer, math.nan) / self.ours


@dataclass(frozen=True)
class Throughput:
    """How long some threads took for the same work, in seconds."""

    threads: int
    clock: float
    processor: float
    """CPU time of all threads together: what it grows by, threads cost each other; what the clock has more, they waited."""


def drawn(size: Size, seed: int = SEED) -> Image:
    """Returns a picture much like a photograph: clouds whose spectrum falls as 1/f, and things with edges before them."""
    width, height = size
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = np.inf
    clouds = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((3, height, width))) / frequency, s=(height, width))
    levels = np.clip(120 + 45 * clouds / clouds.std(), 0, 255).astype(np.uint8)
    picture: Image = np.ascontiguousarray(levels.transpose(1, 2, 0))
    for across, down, share in rng.uniform(0, 1, (24, 3)).tolist():
        centre, radius = (int(across * width), int(down * height)), int(2 + share * height / 12)
        cv2.circle(picture, centre, radius, rng.integers(0, 256, 3).tolist(), -1, cv2.LINE_AA)
    return picture


def floors(picture: Image) -> dict[str, Call]:
    """Returns, by our name, what cannot be left out where that is more than to read and write the picture once (``""``)."""
    height, width = picture.shape[:2]
    size = (width, height)
    written = cv2.imencode(".jpg", picture, (cv2.IMWRITE_JPEG_QUALITY, 50))[1]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), 15, 1.0)

    def resampled(scale: float, back: int) -> Call:
        small = (round(width * scale), round(height * scale))
        return lambda _: cv2.resize(cv2.resize(picture, small, interpolation=cv2.INTER_AREA), size, interpolation=back)

    def grey(_: int) -> Image:
        gray: Image = cv2.cvtColor(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        return gray

    def coded(_: int) -> object:
        cv2.imencode(".jpg", picture, (cv2.IMWRITE_JPEG_QUALITY, 50))
        return cv2.imdecode(written, cv2.IMREAD_COLOR)

    return {
        "": lambda _: cv2.bitwise_not(picture),
        "jpeg_compression": coded,
        "pixelate": resampled(0.5, cv2.INTER_NEAREST),
        "downsample": resampled(0.35, cv2.INTER_LINEAR),
        "upsample": lambda _: cv2.resize(picture[: height // 3, : width // 3], size, interpolation=cv2.INTER_CUBIC),
        "defocus_blur": lambda _: cv2.filter2D(picture, -1, disk_kernel(3.0)),
        "gaussian_blur": lambda _: cv2.GaussianBlur(picture, (9, 9), 1.5),
        **dict.fromkeys(("rotate", "shear", "affine"), lambda _: cv2.warpAffine(picture, turn, size)),
        "perspective_transform": lambda _: cv2.warpPerspective(picture, np.vstack([turn, (0, 0, 1)]), size),
        "flip_h": lambda _: cv2.flip(picture, 1),
        "flip_v": lambda _: cv2.flip(picture, 0),
        **dict.fromkeys(("saturation", "saturation_up"), lambda _: cv2.addWeighted(picture, 0.1, grey(_), 0.9, 0.0)),
        "grayscale": grey,
    }


def times(settings: Sequence[str], size: Size, peers: Sequence[Peer], *, quick: bool = False) -> list[Row]:
    """Times settings on one picture, those at ``mid`` and those without a level beside what peers have like them."""
    picture = drawn(size)
    offered = {peer.name: peer.filters(size[1], size[0]) for peer in peers}
    least = floors(picture)
    rows = []
    for setting in settings:
        name, _, level = setting.partition(":")
        theirs = {peer: filters[name] for peer, filters in offered.items() if name in filters and level in {"", "mid"}}
        rows.append(_row(setting, picture, least.get(name, least[""]), theirs, quick=quick))
    return rows


def medians(calls: Mapping[str, Call], *, quick: bool = False) -> dict[str, float]:
    """Returns the median CPU milliseconds of each call.

    They take turns of some calls each. The first of a turn is not counted: it finds the caches as another library left them.
    A call leaves the turns when enough is known of it; a slow one would take minutes that say nothing new.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    in_turn, least = (2, 2) if quick else (CALLS_IN_TURN, LEAST_TURNS)
    for turn in range(MOST_TURNS):
        for name, call in calls.items():
            if turn >= least and sum(times[name]) >= ENOUGH:
                continue
            call(turn)
            times[name] += [_milliseconds(call, in_turn * turn + each) for each in range(in_turn)]
    return {name: statistics.median(values) for name, values in times.items()}


def throughput(settings: Sequence[str], pictures: Sequence[Image], threads: int) -> Throughput:
    """Returns how long so many threads take to apply all settings to all pictures, in the fastest of some tries."""
    renderers = [perturbations.get(setting) for setting in settings]
    work = [(render, picture) for picture in pictures for render in renderers]

    def once() -> Throughput:
        clock, processor = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(render, picture, seed=SEED) for render, picture in work]:
                done.result()
        return Throughput(threads, time.perf_counter() - clock, time.process_time() - processor)

    return min((once() for _ in range(THREAD_REPEATS)), key=lambda run: run.clock)


def warm_allocator() -> None:
    """Frees a large block, after which the C library keeps freed memory, as in any program that has loaded a model.

    Before that it returns what a call has freed to the kernel and asks for it again in the next, which takes as long as
    the arithmetic does, and more or less so by what ran before.
    """
    np.ones(ALLOCATION, np.uint8)


def _milliseconds(call: Call, number: int) -> float:
    start = time.process_time_ns()
    call(number)
    return (time.process_time_ns() - start) / 1e6


def _row(setting: str, picture: Image, floor: Call, theirs: Mapping[str, Filter], *, quick: bool) -> Row:
    render = perturbations.get(setting)

    def ours(number: int) -> object:
        return render(picture, seed=SEED + number)

    def bound(call: Filter) -> Call:
        return lambda _: call(picture)

    by_call = medians({"": ours, "floor": floor} | {peer: bound(call) for peer, call in theirs.items()}, quick=quick)
    return Row(setting, by_call.pop(""), by_call.pop("floor"), by_call)
