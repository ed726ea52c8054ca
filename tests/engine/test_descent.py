"""Descent: against a hand-written loop, in pieces, clipped, and refusing what is not finite."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.data.examples import Arrays, Shuffled
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, NonFiniteError, State, cut, descent, fit, risk


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def examples(count: int = 50) -> Arrays:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return Arrays((x,), torch.randint(0, 3, (count,), generator=generator))


def adamw(model: nn.Module, lr: float = 0.01, **options: object) -> torch.optim.Optimizer:
    return optimizer_of(model, "AdamW", lr=lr, options={"weight_decay": 0.0, **options}, decay_norms=True)


def test_it_is_the_hand_written_loop() -> None:
    ours, theirs = network(), network()
    batches = Shuffled(examples(), 16, seed=3)
    state = State({"model": ours}, {"": adamw(ours)})
    fit(state, batches, descent(risk(CLASSES), GradientUpdate()), max_steps=12)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.0, fused=True)
    for step in range(12):
        batch = batches(step)
        optimizer.zero_grad()
        F.cross_entropy(theirs(batch.inputs[0]), batch.targets).backward()
        optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-14)


@pytest.mark.parametrize("pieces", [1, 3])
def test_no_gradient_of_the_last_step_is_held_while_activations_are(pieces: int) -> None:
    model, held = network(), []

    def objective(model: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        held.append([p.grad is not None for p in model.parameters()])
        return risk(CLASSES)(model, batch, generator)

    step = descent(objective, GradientUpdate(pieces=pieces))
    fit(State({"model": model}, {"": adamw(model)}), Shuffled(examples(), 16, seed=3), step, max_steps=3)
    assert not any(map(any, held[::pieces]))
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("pieces", [2, 3, 7, 100])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_in_pieces_moves_the_same(pieces: int, weighted: bool) -> None:
    batch = examples(20).take(torch.arange(20), torch.Generator())
    if weighted:
        batch = batch._replace(weight=torch.arange(20, dtype=torch.float64) % 4)
    moved = []
    for count in (1, pieces):
        model = network()
        state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.5)})
        metrics = descent(risk(CLASSES), GradientUpdate(pieces=count))(state, batch)
        moved.append((torch.cat([p.detach().flatten() for p in model.parameters()]), metrics["loss"]))
    assert torch.allclose(moved[0][0], moved[1][0], rtol=0, atol=1e-12)
    assert abs(float(moved[0][1] - moved[1][1])) <= 1e-12


def test_the_loss_is_the_weighted_mean() -> None:
    model = network()
    batch = (
        examples(10).take(torch.arange(10), torch.Generator())._replace(weight=torch.arange(10.0).double())
    )
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.0)})
    losses = F.cross_entropy(model(batch.inputs[0]), batch.targets, reduction="none").detach()
    expected = (losses * batch.weight).sum() / batch.weight.sum()
    assert abs(float(descent(risk(CLASSES), GradientUpdate())(state, batch)["loss"] - expected)) <= 1e-12


def test_clipping_bounds_the_step() -> None:
    model = network()
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1.0)})
    batch = examples(20).take(torch.arange(20), torch.Generator())
    norm = float(descent(risk(CLASSES), GradientUpdate(clip=0.01))(state, batch)["grad_norm"])
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert norm > 0.01
    assert abs(float((after - before).norm()) - 0.01) <= 1e-6


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_what_is_not_finite_moves_nothing(kind: str) -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    state = State({"model": model}, {"": adamw(model, lr=0.125)}, step=17)

    def objective(module: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        losses = F.cross_entropy(module(batch.inputs[0]), batch.targets, reduction="none")
        if kind == "loss":
            return losses + math.inf
        weight = module[2].weight
        return losses + (weight.sum() - weight.sum().detach()).abs().sqrt()  # d sqrt(|z|) at 0 is not finite

    batch = examples(20).take(torch.arange(20), torch.Generator())
    with pytest.raises(NonFiniteError, match=r"at step 17, lr 0\.125") as caught:
        descent(objective, GradientUpdate())(state, batch)
    if kind == "gradient":
        assert "2.weight" in str(caught.value)
    for a, b in zip(model.parameters(), before, strict=True):
        assert torch.equal(a, b)


def test_targets_of_another_shape_are_refused() -> None:
    # prediction = target = 0..3 as (4, 1) against (4,): broadcasting gives 2.5, the loss is 0
    outputs, targets = torch.arange(4.0)[:, None], torch.arange(4.0)
    with pytest.raises(ValueError, match=r"one shape: got outputs \(4, 1\), targets \(4,\)"):
        VALUES.loss(outputs, targets)
    assert VALUES.loss(outputs[:, 0], targets).sum() == 0


def test_pieces_are_the_batch() -> None:
    batch = examples(10).take(torch.arange(10), torch.Generator())
    pieces = list(cut(batch, 4))
    assert [len(p.inputs[0]) for p in pieces] == [3, 3, 2, 2]
    assert torch.equal(torch.cat([p.inputs[0] for p in pieces]), batch.inputs[0])
    assert len(list(cut(batch, 99))) == 10


def test_decay_spares_biases_and_norms() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    spared = optimizer_of(model, "AdamW", lr=0.1, options={"weight_decay": 0.3}, decay_norms=False)
    decays = {id(p): group["weight_decay"] for group in spared.param_groups for p in group["params"]}
    assert [decays[id(p)] for p in model.parameters()] == [0.3, 0.0, 0.0, 0.0, 0.3, 0.0]
    every = optimizer_of(model, "AdamW", lr=0.1, options={"weight_decay": 0.3}, decay_norms=True)
    assert {group["weight_decay"] for group in every.param_groups} == {0.3}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Adamw", {}, r"unknown optimizer 'Adamw'; nearest in torch\.optim and the catalog: Adam"),
        ("SGD", {"beta": 1}, r"torch\.optim\.SGD has no option 'beta'; it has: .*momentum"),
    ],
)
def test_a_wrong_optimizer_is_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimizer_of(nn.Linear(2, 2), name, lr=0.1, options=options, decay_norms=True)


@pytest.mark.parametrize(("share", "moved"), [(0.9, 0.9), (1.1, 1.0)])
def test_clipping_begins_at_the_bound(share: float, moved: float) -> None:
    model = network()
    batch = examples(20).take(torch.arange(20), torch.Generator())
    losses = F.cross_entropy(model(batch.inputs[0]), batch.targets)
    grads = torch.autograd.grad(losses, list(model.parameters()))
    norm = torch.cat([grad.flatten() for grad in grads]).norm()
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1.0)})
    descent(risk(CLASSES), GradientUpdate(clip=share * float(norm)))(state, batch)
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    expected = before - moved * torch.cat([grad.flatten() for grad in grads])
    assert torch.allclose(after, expected, rtol=0, atol=1e-6)


def test_a_gradient_whose_squares_overflow_is_finite_all_the_same() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(model.weight)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1e-30)})
    batch = Batch((torch.tensor([[1e30, -2e30]]),), torch.zeros(1))
    metrics = descent(lambda m, b, g: m(b.inputs[0])[:, 0], GradientUpdate())(state, batch)
    assert metrics["loss"] == 0.0
    assert torch.allclose(model.weight, torch.tensor([[-1.0, 2.0]]), atol=1e-6)


def test_vectors_alone_are_spared_too() -> None:
    model = nn.LayerNorm(4)
    spared = optimizer_of(model, "AdamW", lr=0.1, options={"weight_decay": 0.3}, decay_norms=False)
    assert [group["weight_decay"] for group in spared.param_groups] == [0.0]
    matrices = nn.Linear(4, 4, bias=False)
    decayed = optimizer_of(matrices, "AdamW", lr=0.1, options={"weight_decay": 0.3}, decay_norms=False)
    assert [group["weight_decay"] for group in decayed.param_groups] == [0.3]


def test_frozen_parameters_belong_to_no_optimizer() -> None:
    model = nn.Linear(4, 4)
    model.weight.requires_grad_(False)
    optimizer = optimizer_of(model, "SGD", lr=0.1, options={}, decay_norms=True)
    assert [p is model.bias for group in optimizer.param_groups for p in group["params"]] == [True]
    model.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="Linear has no parameter to train"):
        optimizer_of(model, "SGD", lr=0.1, options={}, decay_norms=True)


def test_a_norm_that_overflows_is_clipped_all_the_same() -> None:
    weight = nn.Parameter(torch.zeros(2))
    model = nn.Module()
    model.weight = weight
    state = State({"model": model}, {"": torch.optim.SGD([weight], lr=1.0)})
    metrics = GradientUpdate(clip=1.0).apply(state, [torch.tensor([1e30, -2e30])], 0.0)
    assert abs(float(metrics["grad_norm"]) / (5**0.5 * 1e30) - 1) <= 1e-6
    assert torch.allclose(weight.detach(), torch.tensor([-1.0, 2.0]) / 5**0.5, atol=1e-5)


class Turned(nn.Module):
    """A linear map whose weight gets a transposed gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight.T.contiguous() * x).sum((1, 2))


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_a_gradient_of_another_layout_moves_the_right_weight(name: str) -> None:
    """Torch's fused steps on the CPU read weight and gradient by one index, whatever their strides."""
    x = torch.arange(1.0, 7.0).reshape(1, 3, 2)
    loss = Turned()
    (grad,) = torch.autograd.grad(loss(x).sum(), loss.weight)
    assert grad.stride() != loss.weight.stride()  # else this shows nothing
    ours, theirs = Turned(), Turned()
    optimizer = getattr(torch.optim, name)(ours.parameters(), lr=0.1, fused=True)
    state = State({"model": ours}, {"": optimizer})
    GradientUpdate()(state, ours(x).sum())
    plain = getattr(torch.optim, name)(theirs.parameters(), lr=0.1, foreach=False, fused=False)
    theirs(x).sum().backward()
    plain.step()
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-6)


def test_batch_normalization_of_one_value_is_refused_with_a_remedy() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    state = State({"model": model}, {"": adamw(model)})
    step = descent(risk(CLASSES), GradientUpdate())
    message = r"needs two values of each map .* got maps of torch.Size\(\[1, 3\]\); set --batch-size 2"
    with pytest.raises(ValueError, match=message):
        fit(state, Shuffled(examples(), 1, seed=3), step, max_steps=1)
    assert state.step == 0
    fit(state, Shuffled(examples(), 2, seed=3), step, max_steps=1)
