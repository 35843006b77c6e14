"""Gallery: `vlmrobust show`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.seeding import AUGMENTATION_SEED

from .parsing import Commands
from .printing import say


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    show = commands.add_parser("show", help="draw one picture under many settings: a contact sheet in HTML or PNG")
    show.add_argument("image", metavar="IMAGE", type=Path, help="a picture in any format that Pillow reads")
    show.add_argument("--out", required=True, type=Path, metavar="FILE", help="what to write: FILE.html or FILE.png")
    show.add_argument("--set", action="append", default=[], metavar="NAME", help="a set of settings, or all; repeatable")
    show.add_argument("--setting", action="append", default=[], help="a setting, such as fog:mid+flip_h; repeatable")
    show.add_argument("--seed", type=int, default=AUGMENTATION_SEED, metavar="N", help="of random ones (default: %(default)s)")
    show.add_argument("--tile", type=int, default=200, metavar="PIXELS", help="width of a tile (default: %(default)s)")
    show.set_defaults(run=_show)


def _show(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.perturbations.gallery import show

    begun = time.perf_counter()
    made = show(options.image, options.out, sets=options.set, settings=options.setting, seed=options.seed, tile=options.tile)
    say(f"{options.out}: {quantity(made.count, 'setting')} in {time.perf_counter() - begun:.1f} s")
    return 0
