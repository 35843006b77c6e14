"""The resolution ladder of Res-Bench: the same image at twelve sizes, measured along its long edge."""

from __future__ import annotations

from .digital import scaled_size
from .pixels import Image, opencv
from .record import Numbered
from .registry import corruption

RUNGS = tuple(range(112, 1345, 112))
"""Long edges in pixels: 112, 224 ... 1344."""
LONG_EDGE = Numbered("long_edge", 1, 32_000, "pixels of the long edge")


def too_small(height: int, width: int, *, long_edge: int) -> str:
    """Returns that an image of ``height`` x ``width`` does not reach the rung, or an empty string."""
    longest = max(height, width)
    return f"the long edge has {longest} pixels, fewer than {long_edge}: left as it is" if longest < long_edge else ""


@corruption(
    family="ladder",
    levels={str(rung): {"long_edge": rung} for rung in RUNGS},
    numbered=LONG_EDGE,
    keeps_size=False,
    note=too_small,
    source="Res-Bench section 3",
)
def resolution(image: Image, *, long_edge: int) -> Image:
    """Shrinks the image until its long edge has ``long_edge`` pixels, averaging areas; the other side follows, rounded.

    A smaller image is unchanged, with a note: a rung never enlarges. All published images exceed the
    highest rung. The paper does not say how it resizes; averaging areas leaves no aliases.
    """
    height, width = image.shape[:2]
    if max(height, width) <= long_edge:
        return image
    return shrink_to_edge(image, long_edge)


def shrink_to_edge(image: Image, long_edge: int) -> Image:
    """Returns ``image`` with a shorter long edge, each new pixel the average of the area it covers."""
    cv2 = opencv()
    height, width = image.shape[:2]
    smaller: Image = cv2.resize(image, aligned_size(height, width, long_edge), interpolation=cv2.INTER_AREA)
    return smaller


def aligned_size(height: int, width: int, long_edge: int) -> tuple[int, int]:
    """Returns (width, height), OpenCV's order, of an image whose long edge becomes ``long_edge``; at least 1 pixel each."""
    return scaled_size(height, width, long_edge / max(height, width))
