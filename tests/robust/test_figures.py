"""Figures of robustness: what is drawn is what the finding holds."""

from dataclasses import replace

import torch
from torch import nn

from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.figures.svg import drawing
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.certify import certified
from margin.robust.figures import examples, radii, sandwich
from margin.robust.sandwich import demo as cube
from margin.robust.sandwich import linf_fgsm, linf_sandwich
from margin.robust.smoothing_claims import demo, l2_smoothing


def test_the_histogram_of_radii_counts_every_example_once():
    finding = l2_smoothing(demo())
    with drawing() as (_, axes):
        said = radii(axes, finding)
        *bars, none = axes.patches
        counts = [bar.get_height() for bar in bars]
        assert sum(counts) == 5
        assert none.get_height() == 1
        assert none.get_x() + none.get_width() <= 0
        radius = finding.curves["radius"]
        for bar in bars:
            low, high = bar.get_x(), bar.get_x() + bar.get_width()
            last = bar is bars[-1]
            inside = (radius >= low - 1e-6) & ((radius <= high + 1e-6) if last else (radius < high - 1e-6))
            assert bar.get_height() == int((inside & (radius > 0)).sum())
        assert axes.get_xlabel() == "certified radius (input units)"
    assert said == "certified radii: 5 examples, none at 1 (wrong, or nothing is proved)"


def test_without_a_certificate_the_histogram_says_none_at_all():
    finding = l2_smoothing(demo())
    nothing = replace(finding, curves={**finding.curves, "radius": torch.full((6,), -1.0)})
    with drawing() as (_, axes):
        assert radii(axes, nothing) == "certified radii: 0 examples, none at 6 (wrong, or nothing is proved)"
        assert radii(axes, replace(finding, curves={})) == ""


def test_attacked_images_stand_below_their_originals_and_the_change_below_both():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    x = 0.2 + 0.6 * torch.rand(40, 1, 6, 6)
    made = Subject(
        model=model,
        test=(Batch((x,), model(x).argmax(1)),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(torch.tensor(0.0), torch.tensor(1.0)),
    )
    finding = linf_fgsm(made)
    before, after = finding.curves["original"], finding.curves["attacked input"]
    assert before.shape == after.shape == (6, 1, 6, 6)
    assert (model(before).argmax(1) != model(after).argmax(1)).all()
    with drawing() as (_, axes):
        said = examples(axes, finding)
        assert len(axes.images) == 18
        titles = [text.get_text() for text in axes.texts]
        assert titles[:2] == ["original", "attacked"] and titles[2].startswith("change, each")
        places = [image.get_extent() for image in axes.images]  # left, right, bottom, top
        for original, attacked, change in zip(places[:6], places[6:12], places[12:], strict=True):
            assert original[:2] == attacked[:2] == change[:2]
            assert original[2] > attacked[3] > attacked[2] > change[3]
    largest = (after - before).abs().max().item()
    assert f"6 images that a step of at most {largest:.4g} breaks" in said


def test_inputs_that_are_no_images_have_accuracy_against_epsilon():
    with drawing() as (_, axes):
        assert examples(axes, linf_fgsm(cube())).startswith("accuracy against epsilon")


def test_images_that_nothing_decides_stand_below_the_curves():
    """A network whose bounds are loose: of each image shown, no attack breaks it and nothing proves it."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(100, 40), nn.Tanh(), nn.Linear(40, 3))
    with torch.no_grad():
        model[1].weight *= 3
    x = torch.rand(60, 1, 10, 10)
    y = model(x).argmax(1)
    made = Subject(
        model=model,
        test=(Batch((x,), y),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(torch.tensor(0.0), torch.tensor(1.0)),
    )
    finding = linf_sandwich(made, shares=(0.0, 0.001, 0.02, 0.04))
    told = next(r for r in finding.remarks if r.startswith("examples neither broken nor certified"))
    counts = [int(n) for n in told.rpartition(" ")[2].split("/")]
    first = next(i for i, count in enumerate(counts) if count)
    images, eps = finding.curves["undecided"], float(finding.curves["undecided eps"])
    assert first > 0 and eps == float(finding.curves["eps"][first]) and len(images) == min(counts[first], 6)
    found = certified(model, images, model(images).argmax(1), [Threat(made.domain, eps)], units=0)
    assert not found.proved.any() and all((image == x).flatten(1).all(1).any() for image in images)
    with drawing() as (_, axes):
        said = sandwich(axes, finding)
        assert len(axes.child_axes) == len(images)
        assert axes.child_axes[0].get_title(loc="left") == f"neither broken nor certified at {eps:.4g}"
    assert said.endswith(
        f"{len(images)} images that at {eps:.4g} neither an attack breaks nor a bound certifies"
    )
    flat = replace(finding, curves={**finding.curves, "undecided": images.flatten(1)})
    with drawing() as (_, axes):
        assert sandwich(axes, flat).endswith("certified") and not axes.child_axes
