"""What an illusion is made to look like: prompts composed of scene, style and light, and the published scales.

The Perceptual Observatory publishes the template ``[scene] x [style] x [light or colour]``, the negative prompt and the scales;
the list of values that its section 9.3 announces is not in the published text, and no code for it was released. The values below
are therefore ours: scenes after those its figures show and those of its predecessor IllusionBench, one combination for each of
the 15 variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_vlmrobust.core.errors import UnknownName

NEGATIVE = "glitch, low quality"
"""The negative prompt of section 9.3."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Scene, style and light of one variant."""

    scene: str
    style: str
    light: str

    def __str__(self) -> str:
        return f"{self.scene}, {self.style}, {self.light}"


@dataclass(frozen=True, slots=True)
class Preset:
    """How strongly the source picture and the prompt hold."""

    controlnet_scale: float
    """Factor on what the ControlNet adds: the larger, the more of the source is kept."""
    guidance_scale: float
    """Of classifier-free guidance: the larger, the more the prompt holds."""


VARIANTS: Mapping[str, Prompt] = MappingProxyType(
    {
        "origami": Prompt("folded paper figures on a table", "origami, paper craft", "soft studio light"),
        "starry_sky": Prompt("the Milky Way over a mountain ridge", "long exposure astrophotography", "deep blue and violet"),
        "window_blinds": Prompt(
            "an empty room with window blinds", "minimalist interior photograph", "striped afternoon sunlight"
        ),
        "night_forest": Prompt("a dense forest with a winding path", "fantasy matte painting", "moonlight and fireflies"),
        "clouds": Prompt("towering clouds seen from a plane", "aerial photograph", "pink and orange dawn"),
        "beach_sunset": Prompt("a beach with rocks and waves", "postcard photograph", "low golden sunset"),
        "medieval_village": Prompt("a medieval village on a hill", "oil painting", "warm evening light"),
        "noir_alley": Prompt("a narrow alley after the rain", "film noir, black and white photograph", "a single street lamp"),
        "candles": Prompt("hundreds of candles on stone steps", "still life photograph", "flickering candlelight"),
        "sand_dunes": Prompt("rippled sand dunes in a desert", "landscape photograph", "long shadows of the morning"),
        "pastel_city": Prompt("a small city block with gardens", "isometric 3D render", "pastel colours"),
        "ocean": Prompt("a stormy ocean with breaking waves", "romantic seascape painting", "silver light through clouds"),
        "underwater_ruins": Prompt("sunken temple ruins with coral", "underwater photograph", "turquoise rays from above"),
        "museum": Prompt("a museum hall with sculptures and visitors", "architectural photograph", "bright skylight"),
        "bazaar": Prompt("a crowded bazaar with carpets and spices", "watercolour illustration", "colourful lanterns"),
    }
)
"""Variant, as in ``illusion:origami``, to its prompt."""

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "words": Preset(controlnet_scale=1.2, guidance_scale=10.5),
        "faces": Preset(controlnet_scale=3.0, guidance_scale=7.5),
    }
)
"""The scales of section 9.3 for WORD and CELEB."""


def prompt(variant: str) -> str:
    """Returns the prompt of a variant.

    Raises:
        UnknownName: there is no such variant.
    """
    if variant not in VARIANTS:
        raise UnknownName("variant of illusions", variant, VARIANTS)
    return str(VARIANTS[variant])


def preset(name: str) -> Preset:
    """Returns the scales called ``name``.

    Raises:
        UnknownName: there is no such preset.
    """
    if name not in PRESETS:
        raise UnknownName("preset of illusions", name, PRESETS)
    return PRESETS[name]
