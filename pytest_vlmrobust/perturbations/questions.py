"""Perturbations of a whole question: a sample in, a sample out.

    import dataclasses
    from pytest_vlmrobust.perturbations import corruption

    @corruption(family="wording", on="question", levels={"capitals": {}})
    def spelling(sample):
        return dataclasses.replace(sample, question=sample.question.upper())

The function takes ``(sample, *, <parameters>)``, and ``(sample, rng, *, <parameters>)`` when ``stochastic``. It may change the
question, the options, the target, the hint, the instruction, the images, and the ``target_of_attack``.
It returns the sample itself where it does not apply; no test of the setting counts that one. Three things have to hold:

- The number of options stays: either the same texts in another order, or other words in the same positions.
- The target is a letter of the options. For options in another order, ``original_letters`` is filled in here: metrics that
  compare answers between settings read it.
- Changed images are sources that paint when loaded: :class:`~pytest_vlmrobust.perturbations.Painted`.

Such steps come first in a setting (``option_order:1+fog:mid``). Prompt, scorer, evidence and viewer see the changed sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, PROBES, Setting, Step
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.core.sample import Sample

from .catalog import records
from .options import shown

FIXED = ("id", "task", "category", "group", "keys", "seeded_by", "localisation")
"""Fields that no perturbation may change: identity, grouping, draws and scoring of samples."""


def split(setting: Setting) -> tuple[tuple[Step, ...], Setting]:
    """Splits a setting into its steps for questions and the setting for pixels after them."""
    if setting in (CLEAN, NO_IMAGE, *PROBES):
        return (), setting
    count = sum(record.on == "question" for record, _ in records(setting))
    return setting.steps[:count], (Setting(setting.steps[count:]) if setting.steps[count:] else CLEAN) if count else setting


def perturbed(sample: Sample, setting: str | Setting, *, seed: int) -> Sample:
    """Returns a sample after the question steps of a setting, without its pixel steps.

    Steps draw like those of :class:`~pytest_vlmrobust.perturbations.Renderer`: derive the seed from the sample, so that samples
    differ.
    """
    parsed = Setting.parse(setting) if isinstance(setting, str) else setting
    steps, names = split(parsed)[0], list[str]()
    for step, (record, level) in zip(steps, records(Setting(steps)) if steps else [], strict=True):
        names.append(record.draws_as or record.name)
        occurrence = names.count(names[-1])
        parts = (names[-1],) if occurrence == 1 else (names[-1], str(occurrence))
        after = record.apply(sample, partial(rng_for, seed, *parts), level)
        if after != sample:
            sample = _checked(sample, after, step)
    return sample


def _checked(before: Sample, after: Any, step: Step) -> Sample:
    """Returns a changed sample with the letters that its options have in the data."""
    if not isinstance(after, Sample):
        raise UsageError(f"perturbation {str(step)!r} returned {after!r:.100} for sample {before.id!r}. Expected a Sample")
    moved = [name for name in FIXED if getattr(after, name) != getattr(before, name)]
    if len(after.images) != len(before.images):
        moved.append("the number of images")
    if len(after.options) != len(before.options):
        moved.append("the number of options")
    if moved:
        raise UsageError(f"perturbation {str(step)!r} changed {', '.join(moved)} of sample {before.id!r}, which it may not")
    for name in ("target", "target_of_attack") if after.task == "choice" else ():
        given = getattr(after, name)
        if given and not {*([given] if isinstance(given, str) else given)} <= {*after.options}:
            raise UsageError(
                f"perturbation {str(step)!r} gives sample {before.id!r} the {name} {given!r}. Expected one of the letters of "
                f"its options: {', '.join(after.options)}"
            )
    back = {letter: before.original_letters.get(old, old) for letter, old in _letters_before(before, after).items()}
    if all(letter == old for letter, old in back.items()):
        back = {}
    stale = after.images != before.images and after.sizes == before.sizes  # made from the original images
    return dataclasses.replace(after, original_letters=back, sizes={} if stale else after.sizes)


def _letters_before(before: Sample, after: Sample) -> Mapping[str, str]:
    """Returns the original letter of each letter: by text and images, or by position if these changed.

    Equal options keep their order.
    """
    left, originals = [*zip(before.options, shown(before), strict=True)], {}
    for letter, look in zip(after.options, shown(after), strict=True):
        same = next((pair for pair in left if pair[1] == look), None)
        if same is None:
            return dict(zip(after.options, before.options, strict=True))
        left.remove(same)
        originals[letter] = same[0]
    return originals
