"""The fourth stage: the model learns to compare pictures, for the Observatory's task `matching`.

compare    three layers are put below the language model's own, and learn alone: to gather each picture, to compare each candidate
           with the support, and to tell the place of the answer which one is the same; and to change prompts with one picture
           as little as they can.
name       the layers above learn to say the letter that the place of the answer then holds, and keep answering the questions
           of the earlier stages.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from comparing import BELOW, Comparer, guidance
from identities import Identities, identities, questions
from illustrated import Illustrator
from naming import Kept
from network import Optimizers, logits_of, run, see
from rows import Batch, Packer, pictures, pixels
from torch import nn
from torch.nn import functional
from transformers import Qwen2VLForConditionalGeneration

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.fingerprint import derive_seed
from pytest_vlmrobust.core.sample import Sample

TASK = "matching"
GROUPS = 1000
"""Groups of pictures that are easily taken for each other, of faces and of words."""
ROWS, REPLAYED = 24, 12
"""Samples, and pictures of the earlier stages, in a step."""
CLEAN_SHARE, VARIANTS = 0.5, 3
"""Share of unperturbed samples, and how many augmentations an entity is seen under: few, so that image tokens can be kept."""
SILENCE, FLOOR = 1.0, 0.01
"""Weight of what the layers below change in a prompt with one picture, and the squared change that hardly counts."""
COMPARE_SHARE = 0.6
"""Share of the stage's time that goes to comparing."""
KEPT_ROWS, NAMED_ROWS, REFRESH_SECONDS = 384, 64, 180.0
"""Rows whose keys and values are kept while letters are learned, how many a step takes, and how long they are good for."""


class Log(Protocol):
    """Writes a line of facts."""

    def __call__(self, **facts: object) -> None: ...


class Observatory:
    """The stage's model, data and log."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, packer: Packer, log: Log, seed: int) -> None:
        self.model, self._packer, self._log = model, packer, log
        self._rng = np.random.default_rng([seed, 4])
        self._text = model.model.language_model
        self._illustrator = Illustrator(model, packer)
        self._collections: tuple[Identities, Identities] = identities(self._rng, GROUPS)
        self._questions = questions(self._rng, self._collections, TASK, ROWS)
        self._replayed = pictures(self._rng, evaluation=False, per_picture=3, words=0.25)

    def compare(self, seconds: float, share: Any) -> None:
        """Teaches the layers below to compare, and to leave prompts with one picture alone."""
        below = self._learning(self._text.layers[:BELOW])
        comparer = Comparer(self._text.config.hidden_size)
        optimizers = Optimizers(below, 0.015, 1.5e-3)
        optimizers.add(comparer, 2e-3)
        for elapsed in self._steps(seconds):
            name, samples = next(self._questions)
            batch, tokens = self._illustrator.batch(samples, self._settings(samples), name)
            where, layers = self._illustrator.comparison(samples), run(self.model, batch, tokens, BELOW)
            guided, looks = guidance(self.model, batch, layers, where)
            said, facts = comparer.losses(layers, where)
            old, old_tokens = self._replay()
            layers = run(self.model, old, old_tokens, BELOW)
            changed = (layers[-1] - layers[0]).square().sum(-1)
            (said + 0.5 * guided + SILENCE * torch.log1p(changed / FLOOR).mean()).backward()
            nn.utils.clip_grad_norm_(below.parameters(), 5.0)
            optimizers.step(share(elapsed / seconds))
            self._note({**facts, **looks, "changed": float(changed.detach().mean())}, name)

    def name(self, seconds: float, share: Any, loss_of: Any) -> None:
        """Teaches the layers above to say the letter, and to answer as before."""
        above = self._learning(self._text.layers[BELOW:])
        optimizers = Optimizers(above, 0.005, 5e-4)
        kept = [self._kept(turn) for turn in range(len(self._collections))]
        refreshed = 0.0
        for elapsed in self._steps(seconds):
            if elapsed - refreshed > REFRESH_SECONDS:
                refreshed = elapsed
                for rows, _ in kept:
                    rows.refresh()
            rows, targets = kept[int(self._rng.integers(len(kept)))]
            chosen = torch.from_numpy(self._rng.permutation(len(targets))[:NAMED_ROWS])
            logits = rows.logits(chosen)
            named = functional.cross_entropy(logits, targets[chosen])
            old, tokens = self._replay()
            answered = logits_of(self.model, old, run(self.model, old, tokens))
            replayed = loss_of(old, answered)
            (named + replayed).backward()
            nn.utils.clip_grad_norm_(above.parameters(), 5.0)
            optimizers.step(share(elapsed / seconds))
            right = float((logits.argmax(-1) == targets[chosen]).float().mean())
            answers = (answered.argmax(-1) == old.target)[old.role == 0]
            self._note({"right": right, "replayed": float(answers.float().mean())}, TASK)

    def _learning(self, layers: Sequence[nn.Module]) -> nn.ModuleList:
        """Returns layers that learn from now on, while everything else stands still."""
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        module = nn.ModuleList(layers)
        for parameter in module.parameters():
            parameter.requires_grad_(True)
        return module

    def _steps(self, seconds: float) -> Iterator[float]:
        """Yields the elapsed seconds, step after step, and reports every 50 of them."""
        started, step = time.monotonic(), 0
        self._facts: dict[str, list[float]] = defaultdict(list)
        while (elapsed := time.monotonic() - started) < seconds:
            yield elapsed
            step += 1
            if step % 50 == 0:
                self._log(step=step, **{name: round(float(np.mean(values)), 3) for name, values in self._facts.items()})
                self._facts.clear()

    def _note(self, facts: dict[str, float], name: str) -> None:
        for fact, value in facts.items():
            self._facts[f"{name}: {fact}"].append(value)

    def _settings(self, samples: Sequence[Sample]) -> list[Setting]:
        """Returns a random setting for each sample: clean, or one of the in-distribution augmentations of its entity."""
        names = perturbations.names("observatory_id")
        every = len(names) // VARIANTS
        starts = [derive_seed(0, sample.group) + every * int(self._rng.integers(VARIANTS)) for sample in samples]
        return [CLEAN if self._rng.random() < CLEAN_SHARE else Setting.parse(names[start % len(names)]) for start in starts]

    def _replay(self) -> tuple[Batch, torch.Tensor]:
        """Returns pictures with one question after the other, as the earlier stages have them."""
        rows, grid = list(islice(self._replayed, REPLAYED)), 4
        batch = self._packer.pack(rows, grid=grid, hint=0.04, rng=self._rng)
        with torch.no_grad():
            return batch, see(self.model, pixels(rows, grid, self._rng, augment=True))

    @torch.no_grad()
    def _kept(self, turn: int) -> tuple[Kept, torch.Tensor]:
        """Returns rows about one collection with what they hold above, and the tokens of their letters."""
        hidden: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        position = torch.empty(0)
        while len(targets) * ROWS < KEPT_ROWS // len(self._collections):
            name, samples = next(self._questions)
            if name.startswith(self._collections[turn].name):
                batch, tokens = self._illustrator.batch(samples, self._settings(samples), name)
                hidden.append(run(self.model, batch, tokens, BELOW)[-1])
                targets.append(batch.target)
                position = batch.position
        return Kept(self.model, torch.cat(hidden), position), torch.cat(targets)
