"""Differentiable stacks: with hard choices they are lists, set by hand they count, trained they count on."""

import pytest
import torch
from torch import Generator, Tensor

from margin.sequence.recurrent import elman
from margin.sequence.recurrent.readouts import LanguageModel
from margin.sequence.recurrent.stack_memory import EMPTY, StackMemory, classifier, language, moved

PUSH, POP, STAY = torch.eye(3)


def test_with_hard_choices_it_is_a_list() -> None:
    """300 random pushes, pops and pauses on one stack of 8 places beside a Python list."""
    g = Generator().manual_seed(0)
    stacks, mirror = torch.full((1, 1, 8), EMPTY), [EMPTY] * 8
    for _ in range(300):
        kind = int(torch.randint(3, (1,), generator=g))
        value = float(torch.rand(1, generator=g))
        stacks = moved(stacks, torch.eye(3)[kind].view(1, 1, 3), torch.tensor([[value]]))
        if kind == 0:
            mirror = [value, *mirror[:-1]]
        elif kind == 1:
            mirror = [*mirror[1:], EMPTY]
        assert stacks[0, 0].tolist() == pytest.approx(mirror)


def test_a_soft_choice_is_the_mean_of_the_hard_ones() -> None:
    g = Generator().manual_seed(1)
    stacks, value = torch.randn(2, 3, 5, generator=g), torch.rand(2, 3, generator=g)
    weights = torch.rand(2, 3, 3, generator=g).softmax(-1)
    hard = [moved(stacks, one.expand(2, 3, 3), value) for one in (PUSH, POP, STAY)]
    mixed = sum(w.unsqueeze(-1) * s for w, s in zip(weights.unbind(-1), hard, strict=True))
    torch.testing.assert_close(moved(stacks, weights, value), mixed)


def counter() -> StackMemory:
    """Set by hand: the units say which of two symbols is read; the first pushes, the second pops."""
    model = StackMemory(2, hidden=2, stacks=1, capacity=30, recurrent="none")
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.read.weight.copy_(200 * torch.eye(2))
        model.read.bias.fill_(-100)
        model.action.weight[0, 0] = model.action.weight[1, 1] = 100.0
    return model


def test_set_by_hand_it_counts() -> None:
    """After a^n b^k the stack holds n - k numbers, for any n up to its capacity."""
    model = counter()
    for n in (1, 7, 29):
        x = torch.eye(2)[torch.tensor([0] * n + [1] * n)]
        state = model.initial(x[None, 0])
        for t, x_t in enumerate(x):
            _, state = model.step(x_t[None], state)
            assert int((state[1] > -0.5).sum()) == (t + 1 if t < n else 2 * n - t - 1)
    full = model(torch.eye(2)[torch.zeros(1, 40, dtype=torch.int64)])[1][1]
    assert bool((full > -0.5).all())  # what is pushed below the last place is lost


def test_the_units_read_the_tops_of_all_stacks() -> None:
    torch.manual_seed(0)
    model = StackMemory(3, hidden=4, stacks=2, capacity=5, reads=2)
    x, (h, stacks) = torch.randn(1, 3), model.initial(torch.zeros(1, 3))
    stacks = stacks.clone().requires_grad_()
    y, _ = model.step(x, (h, stacks))
    (grad,) = torch.autograd.grad(y.sum(), stacks)
    assert bool(grad[0, :, :2].all())
    assert not grad[0, :, 2:].any()
    seen = model.read(x) + stacks[:, :, :2].flatten(1) @ model.top.weight.T + model.recur(h)
    torch.testing.assert_close(y, seen.sigmoid())


def test_bad_options_are_refused() -> None:
    for options in ({"stacks": 0}, {"capacity": 1}, {"reads": 0}, {"reads": 5, "capacity": 4}):
        with pytest.raises(ValueError, match=r"stacks >= 1, capacity >= 2 and reads in 1 \.\. capacity"):
            StackMemory(3, **options)
    assert classifier(3, 2)(torch.randn(4, 5, 3)).shape == (4, 2)
    assert language(3)(torch.randint(3, (2, 5))).shape == (2, 5, 3)


def strings(longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """The a^n b^n with their end, n = 1 .. longest: tokens, next tokens, and where the next is determined."""
    rows = [[0] * n + [1] * n + [2] + [2] * 2 * (longest - n) for n in range(1, longest + 1)]
    tokens, t = torch.tensor(rows), torch.arange(2 * longest)
    n = torch.arange(1, longest + 1)[:, None]
    return tokens[:, :-1], tokens[:, 1:], ((t >= n) & (t < 2 * n)).float()


def right_beyond(model: LanguageModel, known: int, longest: int) -> float:
    """The share of the strings of n = known + 1 .. longest whose determined tokens are all the likeliest."""
    tokens, targets, asked = strings(longest)
    with torch.no_grad():
        wrong = (model(tokens).argmax(-1) != targets) & (asked > 0)
    return float((~wrong.any(1))[known:].double().mean())


def test_trained_it_counts_beyond_its_training_where_an_elman_network_does_not() -> None:
    """Learned from n = 1 .. 5 by 200 steps, asked for n = 6 .. 15; the seed is fixed."""
    tokens, targets, asked = strings(5)
    found = {}
    for name, build in (("stacks", language), ("elman", elman.language)):
        torch.manual_seed(0)
        model = build(3, hidden=12)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
        for _ in range(200):
            loss = torch.nn.functional.cross_entropy(model(tokens).mT, targets, reduction="none")
            optimizer.zero_grad()
            (loss * asked).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        assert right_beyond(model, 0, 5) == 1  # both know what they learned from
        found[name] = right_beyond(model, 5, 15)
    assert found["stacks"] >= found["elman"] + 0.5
