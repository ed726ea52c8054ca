"""Stacked autoencoders: which layer moves when, what an unlabeled example does, and that it helps."""

import contextlib
import math
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from margin.core.options import Training
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.examples import Arrays, Shuffled
from margin.data.sets.tiny.tables import classes
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, Step, fit, risk
from margin.feedforward.mlp.stacked_autoencoder import (
    StackedAutoencoder,
    greedy_pretraining,
    reconstruction_of_layer,
)
from margin.runs.training import finish, prepare, reopen
from margin.testing import check_same_run, stop_after


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


def started(model: StackedAutoencoder, seed: int = 0, lr: float = 1e-2) -> State:
    optimizer = optimizer_of(model, "AdamW", lr=lr, options={}, decay_norms=True)
    return State({"model": model}, {"": optimizer}, seed=seed)


def stepping(total: int, **options: float) -> Step:
    return greedy_pretraining(risk(CLASSES), GradientUpdate(), total, **options)


def test_a_code_is_the_composition_of_its_layers() -> None:
    torch.manual_seed(0)
    model = StackedAutoencoder(4, 3, hidden=(5, 2), activation="tanh")
    x = normal(7, 2, 2)
    one = torch.tanh(model.encoder[0](x.flatten(1)))
    two = torch.tanh(model.encoder[1](one))
    assert torch.equal(model.encode(x, 0), x.flatten(1))
    assert torch.equal(model.encode(x, 1), one) and torch.equal(model.encode(x), two)
    assert torch.equal(model(x), model.head(two))


def test_the_reconstruction_error_is_the_least_over_the_decoders_bias() -> None:
    torch.manual_seed(0)
    model = StackedAutoencoder(4, 3, hidden=(5, 2)).double()
    batch = Batch((normal(9, 4).double(),))
    found = reconstruction_of_layer(1, 0.0)(model, batch, Generator())
    inner = torch.sigmoid(model.encoder[0](batch.inputs[0]))
    W, b = model.encoder[1].weight, model.encoder[1].bias
    residue = (inner - torch.sigmoid(inner @ W.T + b) @ W).detach()
    assert torch.allclose(found, (residue - residue.mean(0)).square().sum(1), rtol=0, atol=1e-13)
    for shift in (1e-3, -1e-3):
        assert found.mean() < (residue - residue.mean(0) - shift).square().sum(1).mean()


def test_corruption_sets_its_share_of_the_inputs_to_zero_and_asks_for_all_of_them() -> None:
    model = StackedAutoencoder(20_000, 3, hidden=(1,), activation="identity").double()
    with torch.no_grad():
        model.encoder[0].weight.fill_(1.0)
        model.encoder[0].bias.zero_()
    x = torch.ones(2, 20_000, dtype=torch.float64)
    x[1] = 0.0
    found = reconstruction_of_layer(0, 0.25)(model, Batch((x,)), Generator().manual_seed(0)).detach()
    # codes are s and 0, residues 1 - s and 0, each half of it from their mean, in 20,000 units
    kept = 1 - 2 * math.sqrt(float(found[0]) / 20_000) * torch.tensor([1.0, -1.0])
    share = float(kept.abs().max() / 20_000)
    assert abs(share - 0.75) <= 4 * math.sqrt(0.75 * 0.25 / 20_000)


def test_what_is_reconstructed_is_the_input_before_corruption() -> None:
    model = StackedAutoencoder(50, 3, hidden=(4,)).double()
    torch.nn.init.zeros_(model.encoder[0].weight)  # then the bias alone reconstructs
    x = normal(9, 50).double()
    found = reconstruction_of_layer(0, 0.5)(model, Batch((x,)), Generator().manual_seed(0))
    assert torch.allclose(found, (x - x.mean(0)).square().sum(1), rtol=0, atol=1e-12)


def test_each_layer_moves_in_its_own_stage_and_all_at_the_end() -> None:
    torch.manual_seed(0)
    model = StackedAutoencoder(4, 3, hidden=(5, 2))
    state, step = started(model), stepping(8, pretraining=0.5)
    batch = Batch((normal(9, 4),), torch.arange(9) % 3)
    moved, stages = [], []
    for _ in range(8):
        before = {name: p.clone() for name, p in model.named_parameters()}
        metrics = step(state, batch)
        state.step += 1
        now = dict(model.named_parameters())
        moved.append({name.rpartition(".")[0] for name in now if not torch.equal(before[name], now[name])})
        stages.append(metrics["layer"])
    layers = ["encoder.0", "encoder.1", "head"]
    assert moved == [{layers[0]}] * 2 + [{layers[1]}] * 2 + [set(layers)] * 4
    assert stages == [1, 1, 2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize(("pretraining", "first"), [(0.0, 0), (0.3, 3), (1.0, 10)])
def test_the_share_of_pretraining_is_of_all_steps(pretraining: float, first: int) -> None:
    state, step = started(StackedAutoencoder(4, 3, hidden=(5, 2, 2))), stepping(10, pretraining=pretraining)
    stages = []
    for _ in range(10):
        stages.append(step(state, Batch((normal(9, 4),), torch.arange(9) % 3))["layer"])
        state.step += 1
    assert sum(stage > 0 for stage in stages) == first
    assert stages[:first] == sorted(stages[:first]) and (not first or stages[0] == 1)
    assert not first or stages[first - 1] == 3


def test_an_example_of_weight_zero_is_reconstructed_but_teaches_no_label() -> None:
    x, labels = normal(8, 4), torch.arange(8) % 3
    weight = (torch.arange(8) < 3).float()

    def after(labels: Tensor, x: Tensor, pretraining: float, weight: Tensor | None = weight) -> Tensor:
        torch.manual_seed(0)
        model = StackedAutoencoder(4, 3, hidden=(5,))
        stepping(1, pretraining=pretraining)(started(model), Batch((x,), labels, weight))
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    wrong = torch.where(weight > 0, labels, (labels + 1) % 3)
    far = torch.where(weight[:, None] > 0, x, 9.0 + x)
    assert torch.equal(after(labels, x, 0.0), after(wrong, x, 0.0))
    assert torch.equal(after(labels, x, 0.0), after(labels, far, 0.0))
    assert torch.equal(after(labels, x, 1.0), after(wrong, x, 1.0))
    assert not torch.equal(after(labels, x, 1.0), after(labels, far, 1.0))
    assert torch.equal(after(labels, x, 1.0), after(labels, x, 1.0, None))
    assert not torch.equal(after(labels, x, 0.0), after(labels, x, 0.0, None))


def test_the_step_corrupts_what_it_reconstructs_by_its_option() -> None:
    batch = Batch((normal(30, 4),), torch.arange(30) % 3)
    losses = {}
    for corruption in (0.0, 0.5):
        torch.manual_seed(0)
        model = StackedAutoencoder(4, 3, hidden=(5,))
        state = started(model)
        state.reseed(torch.device("cpu"))
        expected = reconstruction_of_layer(0, corruption)(
            model, batch, Generator().set_state(state.generator.get_state())
        )
        losses[corruption] = stepping(1, pretraining=1.0, corruption=corruption)(state, batch)["loss"]
        assert losses[corruption] == pytest.approx(float(expected.detach().mean()), abs=1e-5)
    assert abs(losses[0.0] - losses[0.5]) > 1e-2


def test_the_gradient_is_the_sum_over_the_labeled_divided_by_the_batch() -> None:
    torch.manual_seed(0)
    model = StackedAutoencoder(4, 3, hidden=(5,))
    x, labels, weight = normal(8, 4), torch.arange(8) % 3, (torch.arange(8) < 3).float()
    expected = torch.nn.functional.cross_entropy(model(x[:3]), labels[:3]) * 3 / 8
    metrics = stepping(1, pretraining=0.0)(started(model), Batch((x,), labels, weight))
    assert metrics["loss"] == pytest.approx(float(expected.detach()), abs=1e-6)


def test_a_batch_without_a_label_stays_finite() -> None:
    model = StackedAutoencoder(4, 3, hidden=(5,))
    batch = Batch((normal(8, 4),), torch.zeros(8, dtype=torch.long), torch.zeros(8))
    assert stepping(1, pretraining=0.0)(started(model), batch)["grad_norm"] == 0
    assert all(bool(p.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("examples", "taken"), [(3, 1), (5, 2), (9, 4)])
def test_no_piece_of_a_batch_has_a_single_example(examples: int, taken: int) -> None:
    batch, after = Batch((normal(examples, 4),), torch.arange(examples) % 3), []
    for pieces in (4, taken):
        torch.manual_seed(0)
        model = StackedAutoencoder(4, 3, hidden=(5,))
        step = greedy_pretraining(risk(CLASSES), GradientUpdate(pieces=pieces), 1, pretraining=1.0)
        after.append(step(started(model), batch)["loss"])
    assert after[0] == after[1]
    assert after[0] > 0


def test_frozen_layers_do_not_reconstruct_but_serve_what_follows() -> None:
    model = StackedAutoencoder(4, 3, hidden=(5, 4, 2))
    for i in (1, 2):
        model.encoder[i].requires_grad_(False)
    state, batch = started(model), Batch((normal(9, 4),), torch.arange(9) % 3)
    with pytest.raises(ValueError, match=r"not be frozen: got encoder.1, encoder.2 frozen; set pretraining"):
        stepping(4)(state, batch)
    before = model.encoder[2].weight.clone(), model.head.weight.clone()
    stepping(4, pretraining=0.0)(state, batch)
    assert torch.equal(model.encoder[2].weight, before[0])
    assert not torch.equal(model.head.weight, before[1])


def test_a_run_stopped_while_it_reconstructs_goes_on_to_the_bit(tmp_path: Path) -> None:
    arguments = {"options": {"hidden": (5, 3)}, "step": {"corruption": 0.3}, "rule": ""}
    training = Training(max_steps=12, evaluate_every=3, seed=1)
    whole = finish(prepare("stacked_autoencoder", classes(), arguments, training, tmp_path / "whole"))
    for stop in (2, 4, 7):
        job = prepare("stacked_autoencoder", classes(), arguments, training, tmp_path / f"{stop}")
        with contextlib.suppress(KeyboardInterrupt):
            finish(job, hooks=[stop_after(stop)])
        check_same_run(whole, finish(reopen(job.run.path, classes(), Training())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pretraining": 1.5}, r"pretraining must be in \[0, 1\]: got 1.5"),
        ({"pretraining": math.nan}, r"pretraining must be in \[0, 1\]: got nan"),
        ({"corruption": 1.0}, r"corruption must be in \[0, 1\): got 1.0"),
        ({"corruption": -0.1}, r"corruption must be in \[0, 1\): got -0.1"),
    ],
)
def test_a_share_out_of_range_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stepping(10, **options)


def test_what_cannot_be_reconstructed_is_refused() -> None:
    for hidden in ((), (4, 0)):
        with pytest.raises(ValueError, match="hidden must be one width or more, each at least 1: got"):
            StackedAutoencoder(4, 3, hidden=hidden)
    state = started(StackedAutoencoder(4, 3))
    with pytest.raises(
        ValueError, match="needs batches of two examples or more: got 1; set pretraining to 0"
    ):
        stepping(4)(state, Batch((normal(1, 4),), torch.zeros(1, dtype=torch.long)))
    pieces = greedy_pretraining(risk(CLASSES), GradientUpdate(pieces=2), 4, pretraining=0.0)
    with pytest.raises(ValueError, match="accumulate must be 1 where examples have weights: got 2"):
        pieces(state, Batch((normal(4, 4),), torch.zeros(4, dtype=torch.long), torch.ones(4)))


def planes(seed: int) -> tuple[Arrays, Tensor, Tensor]:
    """Three classes around a triangle in a plane of 40 dimensions, in noise; 12 of 400 have a label."""
    generator = Generator().manual_seed(seed)
    plane = torch.linalg.qr(torch.randn(40, 2, generator=generator)).Q
    angle = 2 * math.pi * torch.arange(3) / 3
    corners = 3 * torch.stack((angle.cos(), angle.sin()), 1)

    def drawn(examples: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(examples) % 3
        inner = corners[y] + torch.randn(examples, 2, generator=generator)
        return inner @ plane.T + torch.randn(examples, 40, generator=generator), y

    x, y = drawn(400)
    return Arrays((x,), y, (torch.arange(400) < 12).float()), *drawn(1000)


def accuracy(seed: int, pretraining: float, steps: int = 200) -> float:
    train, x, y = planes(seed)
    torch.manual_seed(seed)
    model = StackedAutoencoder(40, 3, hidden=(8, 2))
    step = stepping(steps, pretraining=pretraining)
    fit(started(model, seed, 3e-2), Shuffled(train, 32, seed=seed), step, max_steps=steps)
    return float((model.eval()(x).argmax(1) == y).double().mean())


def test_with_few_labels_it_beats_the_same_net_from_scratch() -> None:
    gains = [accuracy(seed, 0.5) - accuracy(seed, 0.0) for seed in range(5)]
    low, _ = stats.t.interval(0.95, 4, loc=torch.tensor(gains).mean(), scale=stats.sem(gains))
    assert low > 0, gains
