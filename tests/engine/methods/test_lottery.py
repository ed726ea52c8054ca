"""Lottery tickets: exact sparsity, weights rewound to the bit, zeros that stay, byte-exact resumption."""

from pathlib import Path

import pytest
import torch
from torch import Generator, nn

import margin
from margin.core.catalog import models, resolve
from margin.core.options import Training
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.data.sets.tiny.tables import moons
from margin.engine.hooks import INTERRUPTED
from margin.engine.loop import GradientUpdate, State, fit, risk
from margin.engine.methods.lottery import NAME, Ticket, boundaries, lottery_ticket, prunable
from margin.runs.training import finish, prepare, reopen
from margin.testing import check_same_run

SMALL = {"hidden": [4], "norm": "batch"}


def batch():
    generator = Generator().manual_seed(1)
    return Batch((torch.randn(30, 5, generator=generator),), torch.arange(30) % 3)


def started(optimizer=lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
    return State({"model": model}, {"": optimizer(model.parameters())}, seed=3)


def trained(steps, *, total=12, state=None, seen=None, **options):
    state = state or started()
    step = lottery_ticket(risk(CLASSES), GradientUpdate(), total, **options)
    hooks = [] if seen is None else [lambda state, metrics: seen.append((state.step, metrics)) and None]
    fit(state, lambda _: batch(), step, max_steps=steps, hooks=hooks)
    return state


def zeros(model):
    return sum(int((w == 0).sum()) for w in prunable(model))


@pytest.mark.parametrize("mask", ["magnitude", "random"])
def test_the_sparsity_is_exact_after_every_round(mask):
    seen = []
    state = trained(12, rounds=3, fraction=0.3, mask=mask, seen=seen)
    total = 5 * 7 + 7 * 3
    assert boundaries(12, 3) == [3, 6, 9]
    for step, metrics in seen:
        done = sum(step > start for start in (3, 6, 9))
        assert metrics["weights_left"] == round(total * 0.7**done) / total
    assert zeros(state.model) == total - round(total * 0.7**3)
    biases = [p for p in state.model.parameters() if p.ndim == 1]
    assert all(bool((p != 0).any()) for p in biases)


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), None])
def test_pruned_weights_stay_zero_and_the_others_move(optimizer):
    state = trained(5, rounds=2, fraction=0.5, state=started(optimizer) if optimizer else None)
    before = [w.detach().clone() for w in prunable(state.model)]
    trained(8, rounds=2, fraction=0.5, state=state)
    for w, old in zip(prunable(state.model), before, strict=True):
        assert bool((w[old == 0] == 0).all())
        assert bool((w[old != 0] != old[old != 0]).any())


class Drifting(torch.optim.SGD):
    """Moves weights without a gradient too, as a noisy optimizer does."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(0.1)


def test_pruned_weights_stay_zero_under_an_optimizer_that_moves_what_has_no_gradient():
    state = trained(12, rounds=1, fraction=0.5, state=started(lambda p: Drifting(p, lr=0.01)))
    assert zeros(state.model) == 56 - round(56 * 0.5)


@pytest.mark.parametrize("rewind", [0, 2])
def test_what_is_left_is_rewound_to_the_bit(rewind):
    at = trained(rewind) if rewind else started()
    kept = {name: tensor.clone() for name, tensor in at.model.state_dict().items()}
    whole = trained(6, total=18, rounds=2, fraction=0.4, rewind=rewind)
    last = [w.detach().clone() for w in prunable(whole.model)]
    ticket = whole.modules[NAME]
    for name, tensor in ticket.rewound.state_dict().items():
        assert torch.equal(tensor, kept[name])
    # what step 6 begins with is what a step of length 0 shows
    stopped = trained(6, total=18, rounds=2, fraction=0.4, rewind=rewind)
    stopped.optimizers[""].param_groups[0]["lr"] = 0.0
    trained(7, total=18, rounds=2, fraction=0.4, rewind=rewind, state=stopped)
    threshold = sorted(float(x) for w in last for x in w.abs().flatten())
    pruned = threshold[: len(threshold) - round(0.6 * len(threshold))]
    for (name, w), old in zip(
        [(n, p) for n, p in stopped.model.named_parameters() if p.ndim == 2], last, strict=True
    ):
        gone = old.abs() <= pruned[-1]
        assert bool((w[gone] == 0).all())
        assert torch.equal(w[~gone], kept[name][~gone])


def test_the_optimizer_forgets_at_a_round():
    state = trained(6, total=12, rounds=1)
    assert all(int(kept["step"]) == 6 for kept in state.optimizers[""].state.values())
    trained(7, total=12, rounds=1, state=state)
    assert all(int(kept["step"]) == 1 for kept in state.optimizers[""].state.values())


def test_pruned_weights_have_no_part_in_clipping():
    state = trained(9, total=12, rounds=2, fraction=0.6, state=started(lambda p: torch.optim.SGD(p, lr=0.0)))
    model = state.model
    losses = risk(CLASSES)(model, batch(), Generator())
    grads = torch.autograd.grad(losses.mean(), list(model.parameters()))
    masks = {id(w): w != 0 for w in prunable(model)}
    pairs = zip(model.parameters(), grads, strict=True)
    left = [g * masks[id(p)] if id(p) in masks else g for p, g in pairs]
    step = lottery_ticket(risk(CLASSES), GradientUpdate(), 12, rounds=2, fraction=0.6)
    metrics = step(state, batch())
    assert metrics["grad_norm"] == pytest.approx(
        float(torch.cat([g.flatten() for g in left]).norm()), rel=1e-5
    )


def test_of_equal_weights_the_first_are_kept():
    ticket = Ticket(nn.Linear(4, 2, bias=False), 10)
    ticket.prune([torch.ones(2, 4)], 5)
    assert ticket.masks[0].flatten().tolist() == [True] * 5 + [False] * 3
    ticket.prune([torch.tensor([[0.0, 0, 0, 0], [0, 9, 9, 9]])], 3)  # a pruned weight never comes back
    assert ticket.masks[0].flatten().tolist() == [True] * 3 + [False] * 5
    assert ticket.left == 3 / 8


def test_random_masks_are_other_masks():
    one, two = (trained(12, rounds=1, mask=mask) for mask in ("magnitude", "random"))
    gone = [torch.cat([(w == 0).flatten() for w in prunable(s.model)]) for s in (one, two)]
    assert not torch.equal(*gone)


@pytest.mark.parametrize("stop", [2, 3, 4, 7])
@pytest.mark.parametrize("step", [{}, {"rewind": 1}, {"mask": "random"}])
def test_a_resumed_training_is_the_unbroken_one_to_the_byte(stop, step, tmp_path):
    data = resolve(models()["feedforward/mlp"].tiny)()
    step = {"rounds": 2, "fraction": 0.5, **step}
    arguments = {"options": SMALL, "step": step, "rule": "lottery_ticket"}
    training = Training(max_steps=9, evaluate_every=2, checkpoint_every=1, seed=1)
    whole = finish(prepare("feedforward/mlp", data, arguments, training, tmp_path / "whole"))
    job = prepare("feedforward/mlp", data, arguments, training, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        finish(job, hooks=[lambda state, metrics: INTERRUPTED if state.step == stop else None])
    check_same_run(whole, finish(reopen(job.run.path, data, Training())))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1, fraction in .0, 1.: got 0 and 0.2"),
        ({"fraction": 1.0}, "got 5 and 1.0"),
        ({"fraction": 0.0}, "got 5 and 0.0"),
        ({"rewind": 2}, "within the first of 6 trainings, of 2 steps: got 2"),
        ({"rewind": -1}, "got -1"),
        ({"rounds": 12}, "of 0 steps: got 0"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        lottery_ticket(risk(CLASSES), GradientUpdate(), 12, **options)


def test_what_a_ticket_cannot_be_is_refused():
    step = lottery_ticket(risk(CLASSES), GradientUpdate(), 12, rounds=1)
    state = started()
    state.modules["average"] = state.model
    with pytest.raises(ValueError, match="average must be 0"):
        step(state, batch())
    state = started()
    for p in state.model.parameters():
        p.requires_grad_(p.ndim == 1)
    with pytest.raises(ValueError, match="no trainable parameter of two axes"):
        step(state, batch())
    with pytest.raises(ValueError, match="got 24, the training began with 12"):
        trained(8, total=24, state=trained(6))
    with pytest.raises(ValueError, match="leave none"):
        trained(12, rounds=2, fraction=0.99)
    with pytest.raises(ValueError, match="whole weights"):
        lottery_ticket(risk(CLASSES), GradientUpdate(synchronized=True), 12)


@pytest.mark.parametrize("seed", range(3))
def test_a_ticket_trains_better_than_a_random_mask_of_its_sparsity(seed):
    generator = Generator().manual_seed(seed)
    x = torch.randn(200, 20, generator=generator)
    data = Batch((x,), (x[:, 0] + x[:, 1] > 0).long())  # two of twenty features matter

    def last_loss(mask):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))
        state = State({"model": model}, {"": torch.optim.Adam(model.parameters(), lr=0.05)}, seed=seed)
        step = lottery_ticket(risk(CLASSES), GradientUpdate(), 240, rounds=3, fraction=0.5, mask=mask)
        fit(state, lambda _: data, step, max_steps=240)
        assert zeros(model) == 352 - round(352 * 0.5**3)
        return float(risk(CLASSES)(model, data, generator).mean().detach())

    assert last_loss("magnitude") < 0.2 * last_loss("random")


def test_a_run_hands_out_the_ticket_and_not_a_denser_network(tmp_path: Path) -> None:
    """The validation loss is often least before anything is pruned; the result is what is left."""
    training = Training(epochs=24, batch_size=16, lr=0.02)
    step = {"rounds": 2, "fraction": 0.5}
    run = margin.train(
        "mlp", moons(), training=training, rule="lottery_ticket", step=step, out=tmp_path / "r"
    )
    assert run.reason == "max_steps"
    handed, last = margin.load(run), margin.load(run, "last")
    weights = [p for p in handed.model.parameters() if p.ndim == 2]
    kept = sum(int((w != 0).sum()) for w in weights)
    total = sum(w.numel() for w in weights)
    assert abs(kept / total - 0.25) <= 2 / total
    assert all(torch.equal(a, b) for a, b in zip(handed.parameters(), last.parameters(), strict=True))
