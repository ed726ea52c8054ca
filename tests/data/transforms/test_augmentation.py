"""Augmentation as training on the union of all changes, the words that ask for it, what stays as it is."""

import pickle
import re

import pytest
import torch
from torch import Generator, nn

from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch, Domain
from margin.data.examples import Arrays, Shuffled, TargetedExamples
from margin.data.sets.bundled import digits
from margin.data.transforms.augmentation import WORDS, augmented, kind_of_inputs, transforms_of
from margin.data.transforms.images import Translate, translated
from margin.data.transforms.noise import Noise
from margin.engine.loop import GradientUpdate, State, descent, fit, risk

IMAGES = {"channels": 2, "image_size": (6, 5), "in_features": 60}
SEQUENCES = {"time": 12, "in_features": 3}
POINTS = {"points": 9, "in_features": 27}
VECTORS = {"in_features": 4}
SPECS = {"images": IMAGES, "sequences": SEQUENCES, "points": POINTS, "vectors": VECTORS}
SHAPES = {"images": (2, 6, 5), "sequences": (12, 3), "points": (9, 3), "vectors": (4,)}
STRENGTHS = {
    "shift": "2",
    "crop": "2",
    "roll": "2",
    "rotate": "30",
    "scale": ".2",
    "cutout": "3",
    "drop": ".4",
}
ALL = [(kind, word) for kind, words in WORDS.items() for word in words]


def text_of(word):
    return word if word == "flip" else f"{word}:{STRENGTHS.get(word, '.1')}"


def inputs(kind, n=64, seed=0, dtype=torch.float64):
    generator = Generator().manual_seed(seed)
    return torch.rand(n, *SHAPES[kind], generator=generator, dtype=dtype)


class Pooled(nn.Module):
    """The linear model w . x."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(size, generator=Generator().manual_seed(1), dtype=torch.float64)
        )

    def forward(self, x):
        return x.flatten(1) @ self.weight.flatten()


def test_a_linear_model_under_all_cyclic_shifts_converges_to_a_shift_invariant_weight():
    size = 5
    generator = Generator().manual_seed(0)
    x = torch.randn(4, 1, size, size, generator=generator, dtype=torch.float64)
    x -= x.mean((2, 3), keepdim=True) - torch.randn(4, 1, 1, 1, generator=generator, dtype=torch.float64)
    y = torch.randn(4, generator=generator, dtype=torch.float64)
    x = torch.cat([x] * 20)  # more draws a step
    y = torch.cat([y] * 20)
    # reach 2 on a torus of 5 x 5: each of the 25 shifts once
    batches = Shuffled(augmented(Arrays((x,), y), [Translate(2, "cyclic")]), 80, seed=0)
    model = Pooled((size, size))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.04)
    state = State({"model": model}, {"": optimizer})

    def anneal(state, metrics):
        optimizer.param_groups[0]["lr"] = 0.04 / (1 + state.step / 30)

    def spread(weight):
        return (weight - weight.mean()).abs().max().item()

    start = spread(model.weight.detach())
    fit(state, batches, descent(risk(VALUES), GradientUpdate()), max_steps=250, hooks=[anneal])
    assert spread(model.weight.detach()) < 0.03 * start
    means = 25 * x.mean((1, 2, 3))
    best = (means @ y) / (means @ means)  # least squares among invariant weights
    assert model.weight.mean().item() == pytest.approx(best.item(), abs=0.02)


def test_on_the_fly_is_the_explicit_union_in_expectation_exactly():
    """Every draw of roll:1 and a flip enumerated: the mean gradient is that of the union of 18 copies."""
    x = inputs("images", 3)[:, :1]
    y = torch.tensor([0, 1, 1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(30, 2)).double()

    def gradient(batch):
        loss = risk(CLASSES)(model, batch, Generator()).mean()
        return torch.autograd.grad(loss, model[1].weight)[0]

    union = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            rolled = x.roll((down, right), (2, 3))
            union += [rolled, rolled.flip(3)]
    explicit = gradient(Batch((torch.cat(union),), y.repeat(18)))
    moves = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * 2)
    draws = []
    for down, right in moves.tolist():
        for mirrored in (False, True):
            full = torch.full((3,), 1)
            rolled = translated(x, down * full, right * full, "cyclic", reach=(1, 1))
            draws.append(gradient(Batch((rolled.flip(3) if mirrored else rolled,), y)))
    torch.testing.assert_close(torch.stack(draws).mean(0), explicit, rtol=0, atol=1e-14)
    examples = augmented(
        Arrays((x,), y), transforms_of(["roll:1", "flip"], {"channels": 1, "image_size": (6, 5)})
    )
    copies = torch.stack(union, 1).flatten(2)  # (3, 18, 30)
    counts = torch.zeros(3, 18)
    generator = Generator().manual_seed(0)
    for _ in range(900):
        drawn = examples.take(torch.arange(3), generator).inputs[0].flatten(1)
        hits = (drawn[:, None] == copies).all(2)
        assert (hits.sum(1) == 1).all()  # nothing else is ever drawn
        counts += hits
    # each of 54 counts is binomial(900, 1/18): 6 standard deviations fail with p < 54 * 2e-9
    assert (counts - 50).abs().max() < 6 * (900 / 18 * 17 / 18) ** 0.5


@pytest.mark.parametrize(("kind", "word"), ALL)
def test_every_transform_keeps_shape_type_and_the_input_it_was_given(kind, word):
    (transform,) = transforms_of([text_of(word)], SPECS[kind])
    for dtype in (torch.float32, torch.float64):
        x = inputs(kind, dtype=dtype)
        before = x.clone()
        made = transform(x, Generator().manual_seed(0))
        assert made.shape == x.shape and made.dtype == dtype
        assert torch.equal(x, before)
        assert not torch.equal(made, x)
        assert torch.equal(made, transform(x, Generator().manual_seed(0)))  # the generator's alone
        assert not torch.equal(made, transform(x, Generator().manual_seed(1)))


@pytest.mark.parametrize(("kind", "word"), ALL)
def test_each_example_has_a_draw_of_its_own_and_no_global_one(kind, word):
    (transform,) = transforms_of([text_of(word)], SPECS[kind])
    x = inputs(kind, 1).expand(64, *SHAPES[kind]).contiguous()
    before = torch.get_rng_state()
    made = transform(x, Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)
    assert len(made.flatten(1).unique(dim=0)) > (1 if word == "flip" else 3)


@pytest.mark.parametrize("word", [w for w in WORDS["images"] if w != "noise"])
def test_the_range_of_images_is_kept(word):
    (transform,) = transforms_of([text_of(word)], IMAGES)
    made = transform(inputs("images"), Generator().manual_seed(0))
    assert made.min() >= 0 and made.max() <= 1


@pytest.mark.parametrize("word", WORDS["images"])
def test_bytes_stay_bytes(word):
    strength = "200" if word == "noise" else ""
    (transform,) = transforms_of([f"noise:{strength}" if strength else text_of(word)], IMAGES)
    x = (inputs("images") * 255).round().to(torch.uint8)
    made = transform(x, Generator().manual_seed(0))
    assert made.dtype == torch.uint8
    if word == "noise":  # clipped, not wrapped around: the mean stays in the middle, the ends fill up
        assert (made == 0).double().mean() > 0.1 and (made == 255).double().mean() > 0.1
    if word in ("shift", "crop", "roll", "flip", "cutout"):
        same = transform(x.double(), Generator().manual_seed(0))
        assert torch.equal(made.double(), same)


def test_noise_is_in_units_of_the_spread_and_stays_in_the_domain():
    spread = torch.tensor([1.0, 10.0, 100.0, 0.0])
    (noise,) = transforms_of(["noise:.1"], VECTORS | {"spread": spread})
    made = noise(torch.zeros(20000, 4), Generator().manual_seed(0))
    # 20000 draws: the standard deviation is known to 1/200, 5 of which fail with p < 1e-6
    torch.testing.assert_close(made.std(0), 0.1 * spread, rtol=0.025, atol=0)
    domain = Domain(torch.tensor(0.0), torch.tensor(1.0))
    (bounded,) = transforms_of(["noise:.5"], IMAGES | {"domain": domain})
    made = bounded(inputs("images"), Generator().manual_seed(0))
    assert made.min() == 0 and made.max() == 1
    (jitter,) = transforms_of(["jitter:.01"], POINTS)
    assert isinstance(jitter, Noise) and jitter.most == 5
    moved = Noise(1.0, most=0.5)(torch.zeros(1000), Generator().manual_seed(0))
    assert moved.abs().max() == 0.5


def test_the_background_of_the_spec_is_what_comes_in():
    spec = {**IMAGES, "background": 7.0}
    for word in ("crop:2", "rotate:45", "scale:.5", "cutout:3"):
        made = transforms_of([word], spec)[0](torch.zeros(200, 2, 6, 5), Generator().manual_seed(0))
        assert made.max().item() == pytest.approx(7.0) and made.min().item() == pytest.approx(0.0, abs=1e-5)


def test_targets_weights_further_inputs_and_the_length_stay():
    x, more = inputs("vectors", 10), torch.arange(10)
    y, weight = torch.arange(10) % 3, torch.rand(10)
    plain = Arrays((x, more), y, weight)
    changed = augmented(plain, transforms_of(["noise:1"], VECTORS))
    index = torch.tensor([3, 3, 9])
    batch = changed.take(index, Generator().manual_seed(0))
    assert len(changed) == 10
    assert torch.equal(batch.targets, y[index]) and torch.equal(batch.weight, weight[index])
    assert torch.equal(batch.inputs[1], more[index])
    assert not torch.equal(batch.inputs[0][0], batch.inputs[0][1])  # taken twice, changed twice
    assert torch.equal(plain.inputs[0], x)
    assert isinstance(changed, TargetedExamples) and changed.targets is y
    same = augmented(plain, []).take(index, Generator())
    assert torch.equal(same.inputs[0], x[index])


def test_transforms_act_one_after_the_other():
    both = transforms_of(["roll:2", "noise:.1"], IMAGES)
    x, y = inputs("images", 8), torch.zeros(8)
    generator = Generator().manual_seed(0)
    step_by_step = both[1](both[0](x, generator), generator)
    made = augmented(Arrays((x,), y), both).take(torch.arange(8), Generator().manual_seed(0)).inputs[0]
    assert torch.equal(made, step_by_step)


def test_batches_are_a_function_of_the_step_and_survive_pickling():
    data = digits()
    examples = augmented(data.splits["train"], transforms_of(["shift:1", "rotate:10"], data.spec))
    batches = Shuffled(examples, 32, seed=3)
    again = pickle.loads(pickle.dumps(Shuffled(examples, 32, seed=3)))
    later = [batches(t).inputs[0] for t in (50, 0, 7)]
    assert torch.equal(again(7).inputs[0], later[2])
    assert torch.equal(again(50).inputs[0], later[0])
    other_epoch = Shuffled(examples, len(examples), seed=3)
    assert not torch.equal(other_epoch(0).inputs[0], other_epoch(1).inputs[0])  # fresh draws each pass


def test_the_kind_of_inputs_is_read_from_the_spec():
    for kind, spec in SPECS.items():
        assert kind_of_inputs(spec) == kind
    with pytest.raises(ValueError, match="these are tokens"):
        kind_of_inputs({"vocab_size": 10, "time": 5})
    with pytest.raises(ValueError, match="the data give nodes"):
        kind_of_inputs({"nodes": 3})


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        ("crop:1", "vectors", "crop changes images: these are vectors, which take noise"),
        ("jitter:.1", "images", "jitter changes points: these are images, which take shift, crop"),
        ("drop:.1", "vectors", "drop changes sequences or points: these are vectors"),
        ("shfit:1", "images", "unknown augmentation 'shfit'; nearest for images: shift"),
        ("", "vectors", "unknown augmentation ''"),
        ("flip:2", "images", "flip takes no strength: got 'flip:2'"),
        ("shift", "images", "shift needs a strength, as in shift:2: got 'shift'"),
        ("rotate:x", "images", "rotate needs a strength, as in rotate:15: got 'rotate:x'"),
        ("shift:0", "images", "the strength of shift must be a whole number from 1 to 4: got 'shift:0'"),
        ("shift:5", "images", "a whole number from 1 to 4: got 'shift:5'"),
        ("shift:1.5", "images", "a whole number from 1 to 4"),
        ("cutout:6", "images", "a whole number from 1 to 5"),
        ("rotate:181", "images", "the strength of rotate must be positive and at most 180"),
        ("scale:1", "images", "positive and at most 0.9"),
        ("noise:-1", "images", "the strength of noise must be positive and finite"),
        ("noise:nan", "vectors", "positive and finite: got 'noise:nan'"),
        ("noise:inf", "vectors", "positive and finite"),
        ("shift:12", "sequences", "a whole number from 1 to 11"),
        ("drop:.95", "points", "positive and at most 0.9"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(word, kind, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        transforms_of([word], SPECS[kind])


@pytest.mark.parametrize("word", ["shift:4", "crop:4", "cutout:5", "rotate:180", "scale:.9"])
def test_the_largest_strengths_are_taken(word):
    (transform,) = transforms_of([word], IMAGES)
    assert transform(inputs("images"), Generator().manual_seed(0)).isfinite().all()
