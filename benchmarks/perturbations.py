"""CPU milliseconds per setting of every published perturbation, at two sizes.

CPU time of the process, not time on the clock: on one thread they are the same, and other programs do not disturb it.

    python benchmarks/perturbations.py              # all 133 settings
    python benchmarks/perturbations.py fog rain     # those of some perturbations

If imagecorruptions is importable, its severity 3 is timed beside the perturbations that have the same name there.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations

Image = NDArray[np.uint8]

SIZES = ((640, 480), (1344, 1008))
REPEATS = 5
PEER = "imagecorruptions"
PEER_NAMES = {"salt_pepper": "impulse_noise", "saturation_up": "saturate"}


def drawn(width: int, height: int) -> Image:
    """Returns a picture with gradients, edges and texture."""
    y, x = np.mgrid[0:height, 0:width]
    waves = 127.5 + 60 * np.sin(x / 31) + 60 * np.cos((x + 2 * y) / 53)
    squares = 255 * ((x // 24 + y // 24) % 2)
    return np.stack([waves, squares * 0.7, 255 * y / height], axis=-1).astype(np.uint8)


def milliseconds(call: Callable[[], Any]) -> float:
    """Returns the median CPU time of ``call`` after one call that warms up."""
    call()
    durations = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        durations.append(1000 * (time.process_time() - start))
    return statistics.median(durations)


def own_milliseconds(setting: str, image: Image) -> float:
    """Returns the time of one setting on one picture."""
    render = perturbations.get(setting)
    return milliseconds(lambda: render(image, seed=1234))


def peer_milliseconds(name: str, image: Image) -> float | None:
    """Returns the peer's time for the perturbation of that name, or ``None`` where it has none or fails."""
    peer = importlib.import_module(PEER)
    theirs = PEER_NAMES.get(name, name)
    if theirs not in peer.get_corruption_names("all"):
        return None
    try:
        return milliseconds(lambda: peer.corrupt(image, severity=3, corruption_name=theirs))
    except (AttributeError, TypeError) as error:  # its releases break on current NumPy and scikit-image, one name at a time
        print(f"  {PEER} {theirs}: {type(error).__name__}: {error}")
        return None


def row(setting: str, images: list[Image]) -> list[float]:
    """Prints and returns the times of one setting at all sizes."""
    times = [own_milliseconds(setting, image) for image in images]
    print(f"{setting:28}" + "".join(f"{value:14.1f}" for value in times))
    return times


def compare(images: list[Image], names: list[str]) -> None:
    """Prints how many times longer the peer takes, at the middle level, or that it is not there."""
    if importlib.util.find_spec(PEER) is None:
        print(f"\n{PEER} is not installed: no comparison")
        return
    print(f"\ntimes as long in {PEER} (its severity 3 against our mid)")
    for name in names:
        theirs = [peer_milliseconds(name, image) for image in images]
        ours = [own_milliseconds(f"{name}:mid", image) for image in images]
        pairs = [f"{peer / own:13.1f}x" for peer, own in zip(theirs, ours, strict=True) if peer is not None]
        if pairs:
            print(f"{name:28}" + "".join(pairs))


def main(wanted: list[str]) -> None:
    """Times the settings of the ``wanted`` perturbations, or of all."""
    cv2.setNumThreads(1)
    images = [drawn(*size) for size in SIZES]
    settings = [name for name in perturbations.names() if not wanted or name.split(":")[0] in wanted]
    print(f"{f'CPU ms, median of {REPEATS}':28}" + "".join(f"{f'{w}x{h}':>14}" for w, h in SIZES))
    times = [row(setting, images) for setting in settings]
    print(f"{f'total of {len(times)}':28}" + "".join(f"{sum(column):14.1f}" for column in zip(*times, strict=True)))
    print(f"{'slowest':28}" + "".join(f"{max(column):14.1f}" for column in zip(*times, strict=True)))
    compare(images, list(dict.fromkeys(setting.split(":")[0] for setting in settings if ":" in setting)))


if __name__ == "__main__":
    main(sys.argv[1:])
