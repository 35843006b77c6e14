from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.fingerprint import canonical_json, derive_seed, fingerprints_after, pixels_digest
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets.images import FileImage
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.run import views as module
from pytest_vlmrobust.evaluation.run.views import ViewMaker, code_digest, declared_perturbations
from pytest_vlmrobust.evaluation.tasks.pictures import Collage, Fitted, Move, Moved
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.policies import Policy
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample, sweep_of

STOCHASTIC = Setting.parse("gaussian_noise:mid")
FIXED = Setting.parse("invert")


def test_clean_is_the_source_and_no_image_is_nothing() -> None:
    source = sample(1)
    clean = ViewMaker(1).view(source, CLEAN)
    assert np.array_equal(clean.images[0], picture(1))
    assert clean.digests == (pixels_digest(picture(1)),)
    nothing = ViewMaker(1).view(source, NO_IMAGE)
    assert nothing.images == nothing.digests == ()


def test_a_view_is_the_perturbation_seeded_by_sample() -> None:
    view = ViewMaker(1234).view(sample(1), STOCHASTIC)
    expected = perturbations.get("gaussian_noise:mid")(picture(1), seed=derive_seed(1234, "q1"))
    assert np.array_equal(view.images[0], expected)
    assert view.digests == (pixels_digest(expected),)


def test_every_picture_of_a_sample_is_perturbed() -> None:
    two = sample(1, images=(MemoryImage(picture(1)), MemoryImage(picture(2))))
    assert [image.tolist() for image in ViewMaker(1).view(two, FIXED).images] == [
        (255 - picture(1)).tolist(),
        (255 - picture(2)).tolist(),
    ]


def test_every_picture_has_a_draw_of_its_own_and_the_first_has_that_of_the_sample() -> None:
    same = MemoryImage(picture(1))
    alone, two = sample(1, images=(same,)), sample(1, images=(same, same))
    first, second = ViewMaker(1).view(two, STOCHASTIC).digests
    assert ViewMaker(1).view(alone, STOCHASTIC).digests == (first,)
    assert second != first
    assert ViewMaker(1).view(dataclasses.replace(two, perturbed=(1, 0)), STOCHASTIC).digests == (second, first)
    support = dataclasses.replace(two, perturbed=(1,))
    assert ViewMaker(1).view(support, STOCHASTIC).digests == (pixels_digest(picture(1)), first)


def test_a_recipe_of_several_pictures_tells_their_draws() -> None:
    source = sample(1)
    two = sample(1, images=(MemoryImage(picture(1)), MemoryImage(picture(2))))
    maker = ViewMaker(1)
    seed, sources = str(derive_seed(1, "q1")), canonical_json([source.images[0].identity()])
    parts = canonical_json(code_digest()), canonical_json(perturbations.fingerprint(STOCHASTIC))
    assert maker.recipe(source, STOCHASTIC) == fingerprints_after(*parts)(seed, sources)
    both = canonical_json([source.identity() for source in two.images])
    assert maker.recipe(two, STOCHASTIC) != fingerprints_after(*parts)(seed, both)  # what one draw for all of them was called
    assert maker.recipe(two, STOCHASTIC) == fingerprints_after(*parts)(f"{seed},{derive_seed(1, 'q1', '1')}", both)


def test_pictures_that_were_made_for_a_rung_are_shown_as_they_are() -> None:
    source = sample(1, sizes={448: (MemoryImage(picture(2)),), 1344: (MemoryImage(picture(1)),)})
    maker = ViewMaker(1)
    made = Setting.parse("resolution:448")
    assert np.array_equal(maker.view(source, made).images[0], picture(2))
    assert maker.view(source, CLEAN).digests == maker.view(source, Setting.parse("resolution:1344")).digests
    assert maker.recipe(source, made) == maker.recipe(sample(2), CLEAN)
    assert maker.recipe(source, made) != maker.recipe(sample(1), made)
    padded = maker.view(source, Setting.parse("resolution:448+invert"))  # what comes after a rung begins with it
    assert np.array_equal(padded.images[0], 255 - picture(2))
    assert maker.recipe(source, Setting.parse("resolution:448+invert")) == maker.recipe(sample(2), FIXED)
    unmade = Setting.parse("resolution:16")  # nobody made this one, nor others of the kind
    assert maker.view(source, unmade).digests == maker.view(sample(1), unmade).digests
    lanczos = Setting.parse("resolution_lanczos:448")
    assert maker.view(source, lanczos).digests == maker.view(sample(1), lanczos).digests


def test_samples_differ_and_seeds_differ() -> None:
    same_picture = [sample(i, images=(MemoryImage(picture(0)),)) for i in (1, 2)]
    digests = {ViewMaker(seed).view(source, STOCHASTIC).digests for seed in (1, 2) for source in same_picture}
    assert len(digests) == 4


def test_every_thread_makes_the_same_view() -> None:
    wanted = [(sample(i), Setting.parse(name)) for i in range(4) for name in ("gaussian_noise:mid", "rain:high", "flip_h")] * 3
    alone = [ViewMaker(1).view(*pair).digests for pair in wanted]
    maker = ViewMaker(1)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda pair: maker.view(*pair).digests, wanted)) == alone


def test_a_source_is_read_once_for_all_settings() -> None:
    source, maker = sample(1), ViewMaker(1)
    for setting in (CLEAN, FIXED, STOCHASTIC, CLEAN):
        maker.view(source, setting)
    assert [image.loaded for image in source.images if isinstance(image, MemoryImage)] == [1]


def test_sources_are_let_go_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SOURCE_BYTES", 2 * picture(0).nbytes)
    samples, maker = [sample(i) for i in range(3)], ViewMaker(1)
    for source in (*samples, samples[2], samples[0]):
        maker.view(source, CLEAN)
    assert [source.images[0].loaded for source in samples if isinstance(source.images[0], MemoryImage)] == [2, 1, 1]


def test_sources_that_were_freed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SOURCE_BYTES", 2 * picture(0).nbytes)
    samples, maker = [sample(i) for i in range(2)], ViewMaker(1)
    for source in samples:
        maker.view(source, CLEAN)
    maker.forget()
    for source in (*samples, *samples):
        maker.view(source, CLEAN)
    assert [source.images[0].loaded for source in samples if isinstance(source.images[0], MemoryImage)] == [2, 2]


def test_collages_are_kept_as_what_stands_in_them() -> None:
    shown = [MemoryImage(picture(i)) for i in range(4)]
    orders = ([0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 0, 2])
    samples = [sample(i, images=(Collage(tuple(shown[i] for i in order), 2, (40, 30)),)) for i, order in enumerate(orders)]
    maker = ViewMaker(1)
    for source in samples:
        assert maker.view(source, CLEAN).digests == (pixels_digest(source.images[0].load()),)
        assert not maker.view(source, CLEAN).images[0].flags.writeable
    by_hand = [order.count(i) for i in range(4) for order in orders]
    assert sum(image.loaded for image in shown) == sum(by_hand) + len(shown)


def test_a_source_cannot_be_written_to_through_a_view() -> None:
    with pytest.raises(ValueError, match="read-only"):
        ViewMaker(1).view(sample(1), CLEAN).images[0][0, 0, 0] = 1


def test_a_broken_picture_is_an_image_error() -> None:
    with pytest.raises(ImageError, match="cannot be decoded"):
        ViewMaker(1).view(sample(1, images=(MemoryImage(picture(1), broken=True),)), FIXED)


def test_recipes_depend_on_the_seed_only_where_pixels_do() -> None:
    source = sample(1)
    for setting in (CLEAN, NO_IMAGE, FIXED):
        assert ViewMaker(1).recipe(source, setting) == ViewMaker(2).recipe(source, setting)
    assert ViewMaker(1).recipe(source, STOCHASTIC) != ViewMaker(2).recipe(source, STOCHASTIC)
    assert ViewMaker(1).recipe(source, Setting.parse("invert+gaussian_noise:mid")) != ViewMaker(2).recipe(
        source, Setting.parse("invert+gaussian_noise:mid")
    )


def test_samples_with_one_picture_share_the_recipes_without_randomness() -> None:
    first, second = (sample(i, images=(MemoryImage(picture(0)),)) for i in (1, 2))
    maker = ViewMaker(1)
    assert maker.recipe(first, FIXED) == maker.recipe(second, FIXED)
    assert maker.recipe(first, STOCHASTIC) != maker.recipe(second, STOCHASTIC)


def test_recipes_depend_on_the_source_picture_and_on_the_setting() -> None:
    maker = ViewMaker(1)
    recipes = [maker.recipe(sample(i), Setting.parse(name)) for i in range(3) for name in ("clean", "fog:low", "fog:mid")]
    assert len(set(recipes)) == 9
    forwards = sample(1, images=(MemoryImage(picture(1)), MemoryImage(picture(2))))
    backwards = sample(1, images=(MemoryImage(picture(2)), MemoryImage(picture(1))))
    assert maker.recipe(forwards, CLEAN) != maker.recipe(backwards, CLEAN)


def test_recipes_depend_on_the_version_of_a_perturbation(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, source = ViewMaker(1), sample(1)
    before = maker.recipe(source, FIXED)
    raised = dataclasses.replace(REGISTRY.get("invert"), version=REGISTRY.get("invert").version + 1)
    monkeypatch.setitem(REGISTRY._things, "invert", raised)
    assert maker.recipe(source, FIXED) != before


def test_own_levels_of_a_built_in_function_are_declared_and_packages_stay_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken_of_the_test", "no_such_package:thing", "pytest_vlmrobust.perturbations")
    monkeypatch.setitem(REGISTRY._installed_entries(), broken.name, broken)
    assert "gaussian_blur" not in declared_perturbations()
    built_in = REGISTRY.get("gaussian_blur")
    digests = []
    for radius in (1.0, 9.0):
        changed = dataclasses.replace(built_in, name="blur_of_the_test", levels={"low": {"radius": radius}})
        monkeypatch.setitem(REGISTRY._things, changed.name, changed)
        digests.append(declared_perturbations()[changed.name])
    assert digests[0] != digests[1]


def test_recipes_depend_on_the_code_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, source = ViewMaker(1), sample(1)
    before = maker.recipe(source, FIXED)
    code_digest.cache_clear()
    monkeypatch.setattr(module, "_installed", lambda package: "0.0.0")
    try:
        assert maker.recipe(source, FIXED) != before
    finally:
        code_digest.cache_clear()


def test_no_picture_is_read_for_a_recipe() -> None:
    source = sample(1)
    ViewMaker(1).recipe(source, STOCHASTIC)
    assert [image.loaded for image in source.images if isinstance(image, MemoryImage)] == [0]


PATCHES = cell("patches:2")


def patch(number: int, index: int) -> bytes:
    """Returns the pixels of one patch of a sample's picture."""
    return bytes(perturbations.get("patches:2")(picture(number), seed=1)[index].tobytes())


def sees(*patches: bytes) -> object:
    """Answers B (right) where it sees the whole picture or one of ``patches``, else A."""

    def answer(request: Request) -> str:
        whole = request.images and request.images[0].shape == (12, 16, 3)
        return "B" if whole or (request.images and request.images[0].tobytes() in patches) else "A"

    return answer


def judge(world: World) -> Judge:
    return Judge(world.evaluator(), {"model": Policy()}, date(2026, 6, 1))


def test_every_patch_is_asked_about_once_row_by_row(world: World) -> None:
    result = world.evaluator().result(PATCHES)
    assert (result.views, result.n_requested, result.n_inferred) == (4, 24, 24)
    assert world.model.asked_about == [f"q{number}" for number in range(6) for _ in range(4)]
    images_asked = [request.images for request in world.model.requests]
    assert all(len(images) == 1 for images in images_asked)
    assert [images[0].tobytes() for images in images_asked] == [patch(number, index) for number in range(6) for index in range(4)]
    again = world.evaluator().result(PATCHES)
    assert (again.n_inferred, again.predictions) == (0, result.predictions)


def test_the_score_of_a_sample_is_that_of_its_best_patch(world: World) -> None:
    world.model.answer = sees(patch(0, 1), patch(0, 2), patch(3, 3))  # type: ignore[assignment]
    result = world.evaluator().result(PATCHES)
    assert result.by_view[[0, 1, 3]].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert result.values.tolist() == [1, 0, 0, 1, 0, 0]


def test_a_patch_without_an_answer_leaves_the_sample_without_a_score(world: World) -> None:
    missing = patch(2, 0)
    world.model.answer = lambda request: failed_prediction("down") if request.images[0].tobytes() == missing else "B"
    values = world.evaluator().result(PATCHES).values
    assert math.isnan(values[2])
    assert not np.isnan(np.delete(values, 2)).any()


def test_of_several_pictures_the_patches_of_one_position_go_together(world: World) -> None:
    world.samples = [sample(0, images=(MemoryImage(picture(0)), MemoryImage(picture(9))))]
    world.evaluator().result(PATCHES)
    assert [[image.tobytes() for image in request.images] for request in world.model.requests] == [
        [patch(0, index), patch(9, index)] for index in range(4)
    ]


def test_a_cell_of_patches_is_measured_by_the_index_and_says_where_answers_come_from(world: World) -> None:
    world.samples = [sample(number, target="AB"[number % 2]) for number in range(6)]
    seen: Callable[[Request], str] = sees(patch(0, 1), patch(1, 1), patch(2, 1), patch(2, 3))  # type: ignore[assignment]
    world.model.answer = lambda request: "AB"[(int(request.sample_id[1:]) + (seen(request) != "B")) % 2]
    record = judge(world).run(PATCHES)
    by_name = {measure.metric: measure for measure in record.measures}
    assert by_name["accuracy"].value == 0.5
    assert by_name["pcri"].value == by_name["rci"].value == pytest.approx(0.5)
    assert {"pcri_excess", "accuracy_drop"} <= {*by_name}
    assert not {"pcri_matched", "relative_corruption_error"} & {*by_name}
    assert record.positions == pytest.approx((0, 0.75, 0, 0.25))
    assert record.notes == ("patches:2: an RCI of 0.500 is strong global",)
    assert (record.n, record.n_requested, by_name["pcri"].n) == (24, 24, 6)
    assert Record.from_json(record.to_json()).positions == record.positions


def received(**grids: str) -> object:
    """Answers B and says at which size the picture arrived: by setting without its colon."""

    def answer(request: Request) -> Prediction:
        grid = grids.get(request.setting.replace(":", ""), "")
        return Prediction("B", "generate", details={"image_grid_thw": grid} if grid else {})

    return answer


def test_rungs_that_reach_the_model_as_one_are_named(world: World) -> None:

    world.model.answer = received(resolution4="1x2x2", resolution8="1x2x2", resolution12="1x3x4", resolution16="1x4x4")  # type: ignore[assignment]
    settings = [Setting.parse(f"resolution:{edge}") for edge in (4, 8, 12, 15)]
    judged = judge(world)
    assert judged.run(cell("resolution:8")).received == "image grid thw 1x2x2"
    assert judged.run(cell("resolution:15")).received == ""
    record = judged.run(sweep_of("resolution_accuracy"), [CLEAN, *settings])
    unknown, collapsed = record.notes
    assert unknown == "the model does not say at which size it received resolution:15: whether these differ is unknown"
    assert collapsed.startswith(
        "resolution:4, resolution:8 reached the model at one size (image grid thw 1x2x2): the size limits of its"
    )


def test_rungs_that_show_the_same_pictures_are_no_ladder(world: World) -> None:
    """Pictures that are smaller than the lowest rung are left as they are: a model cannot lose on them."""
    from pytest_vlmrobust.core.decision import Outcome

    judged, edge = judge(world), max(picture(0).shape)
    large = [Setting.parse(f"resolution:{size}") for size in (edge, edge + 8, edge + 40)]
    for metric in ("absolute_continuous_error", "largest_downward_step", "resolution_accuracy"):
        record = judged.run(sweep_of(metric), [CLEAN, *large])
        assert record.outcome is Outcome.NOT_APPLICABLE
        assert record.reason == "all 3 rungs showed the same images, as happens when no image is larger than the lowest rung"
        assert all(not math.isfinite(measure.value) for measure in record.measures)
    lower = Setting.parse("resolution:8")
    record = judged.run(sweep_of("absolute_continuous_error"), [CLEAN, lower, *large])
    assert math.isfinite(record.measures[0].value)
    named = ", ".join(map(str, large))
    assert record.notes[0] == f"{named} showed the same images, as happens when no image is larger than the lowest of these"


def test_a_picture_that_changes_on_disk_is_noticed_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], []

    class Changing(MemoryImage):
        def identity(self) -> str:
            looks.append(now[0])
            return f"as it is {'later' if now[0] > 100.5 else 'at first'}"

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    changing = [sample(number, images=(Changing(picture(number)),)) for number in range(3)]
    maker = ViewMaker(1)
    before = maker.recipes(changing, FIXED)
    assert maker.recipes(changing, FIXED) == before != maker.recipes(changing, STOCHASTIC)
    assert len(looks) == 3, "each file is looked at once for all settings"
    now[0] += 1.1
    assert not set(maker.recipes(changing, FIXED)) & set(before)
    assert maker.recipes(changing, FIXED) == [maker.recipe(source, FIXED) for source in changing]
    other = [sample(9), sample(8)]
    assert maker.recipes(other, FIXED) == [ViewMaker(1).recipe(source, FIXED) for source in other]
    assert len(maker._looks) == 2  # those of this second
    now[0] += 1.1
    maker.recipes(other, CLEAN)
    assert len(maker._looks) == 1


@pytest.mark.parametrize(
    "compose",
    [
        lambda image: image,
        lambda image: Collage((MemoryImage(picture(3)), Fitted(image, (8, 8))), 2, (8, 8)),
        lambda image: Moved(image, Move((8, 8), (6, 6), (1, 1))),
    ],
)
def test_a_picture_that_changes_while_a_run_reads_it_is_refused(
    tmp_path: Path, compose: Callable[[ImageSource], ImageSource]
) -> None:
    """Else a clean and a perturbed answer would be about two pictures, and nobody would see it."""
    path = tmp_path / "one.png"
    Image.fromarray(picture(1)).save(path)
    source = dataclasses.replace(sample(1), images=(compose(FileImage(path, "data.jsonl:1")),))
    maker = ViewMaker(1)
    recipe = maker.recipe(source, CLEAN)
    assert np.array_equal(maker.view(source, CLEAN).images[0], source.images[0].load())
    Image.fromarray(picture(2)[:-1]).save(path)
    for look in (maker.recipe, maker.view):
        with pytest.raises(ImageError, match=r"data\.jsonl:1: .*one\.png was changed while the run was reading it\. Start"):
            look(source, FIXED)
    assert ViewMaker(1).recipe(source, CLEAN) != recipe  # the next run is about the new one


def test_a_picture_that_changes_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.fromarray(picture(1)).save(path)

    class Slow(FileImage):
        def load(self) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
            Image.fromarray(picture(2)[:-1]).save(path)
            return super().load()

    source = dataclasses.replace(sample(1), images=(Slow(path, "data.jsonl:1"),))
    with pytest.raises(ImageError, match="was changed while the run was reading it"):
        ViewMaker(1).view(source, CLEAN)
