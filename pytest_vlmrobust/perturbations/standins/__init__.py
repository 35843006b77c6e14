"""Stand-ins: procedural pictures in place of the diffusion illusions of the Perceptual Observatory.

The paper's 15 illusions are pictures that Stable Diffusion paints under a ControlNet: the layout of a face or a word stays, and
a scene, a style and a light of a prompt replace its appearance. They need gigabytes of weights, and neither prompts nor seeds
are published. The 15 stand-ins here need neither. Each keeps the luminance of the picture at the size of its parts and replaces
its colours and its fine texture by a technique (print, mosaic, paint, thread, folded paper) or a scene (stars, clouds, dunes, a
forest at night, candles) of the kind that the published samples show.

What they can say: whether a model still finds a layout when every colour and every local texture is foreign, the same way on
each machine. What they cannot: they add no objects that could be named instead, follow no prompt, know nothing of what the
picture shows, and have nothing of the statistics of diffusion models. A drop under stand-ins is no estimate of a drop under the
published illusions, and the two are never to be put into one table without saying so. Hence the name, which each carries.
"""

from __future__ import annotations

from . import landscapes, mosaics, prints

__all__ = ["landscapes", "mosaics", "prints"]
