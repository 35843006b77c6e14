"""Stand-ins: procedural images that replace the diffusion illusions of the Perceptual Observatory.

The paper's 15 illusions are images by Stable Diffusion with a ControlNet: the layout of a face or a word stays, and
the scene, style and light of a prompt replace its appearance. They need gigabytes of weights, and neither prompts nor seeds
are published. The 15 stand-ins here need neither. Each keeps the luminance of the image at the size of its parts and replaces
its colours and its fine texture by a technique (print, mosaic, paint, thread, folded paper) or a scene (stars, clouds, dunes, a
forest at night, candles) of the kind that the published samples show.

They can show whether a model still finds a layout when every colour and local texture is foreign, and they are the same on every
machine. They add no objects that a model could name instead, use no prompt, do not depend on the content of the image, and
lack the statistics of diffusion models. A drop under stand-ins does not estimate a drop under the published illusions, and a
table with both must say so. Each name therefore contains "standin".
"""

from __future__ import annotations

from . import landscapes, prints

__all__ = ["landscapes", "prints"]
