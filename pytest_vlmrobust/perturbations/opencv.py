"""OpenCV, or a message that says how to get it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from pytest_vlmrobust.core.errors import MissingExtra, VlmRobustError


class BrokenOpenCV(MissingExtra):
    """OpenCV is installed and cannot be loaded, mostly because a shared library of the desktop is absent."""

    __module__ = "pytest_vlmrobust"

    def __init__(self, reason: ImportError) -> None:
        VlmRobustError.__init__(
            self,
            f"perturbations need OpenCV, and its import failed: {reason}. On a machine without a desktop either install the "
            "missing libraries (apt-get install libgl1 libglib2.0-0) or the build that does not need them "
            "(pip uninstall opencv-python, then pip install opencv-python-headless)",
        )


@functools.cache
def opencv() -> Any:
    """Returns the module ``cv2``.

    Raises:
        MissingExtra: it is not installed; the message has the pip line.
        BrokenOpenCV: it is installed, and loading it failed; the message has the remedies.
    """
    try:
        return importlib.import_module("cv2")
    except ModuleNotFoundError as error:
        if error.name != "cv2":
            raise BrokenOpenCV(error) from error
        raise MissingExtra("perturbing an image", "cv2", install="opencv-python") from error
    except ImportError as error:
        raise BrokenOpenCV(error) from error
