"""Networks that are trained together against each of them trained alone by torch's own modules."""

import pytest
import torch
from torch import Generator, nn

from margin.math.seeds import mix
from margin.theory.capacity.many_networks import PURPOSE, descend, squared, started

WIDTHS, SEEDS = [3, 7, 5], [1, 1, 2]


def alone(widths: list[int], seeds: list[int], m: int) -> nn.Sequential:
    networks = started(4, widths, seeds, 2)
    width = widths[m]
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    with torch.no_grad():
        model[0].weight.copy_(networks.hidden[m, :, :width].T)
        model[0].bias.copy_(networks.offset[m, 0, :width])
        model[2].weight.copy_(networks.output[m, :width].T)
        model[2].bias.copy_(networks.bias[m, 0])
    return model


@pytest.mark.parametrize("rows", [None, [20, 20, 20], [20, 9, 30]])
@pytest.mark.parametrize("own", ["nothing", "targets", "all"])
def test_each_is_what_it_would_be_alone(rows: list[int] | None, own: str) -> None:
    generator = Generator().manual_seed(0)
    x = torch.randn(*((3, 30, 4) if own == "all" else (30, 4)), generator=generator)
    targets = torch.randn(*((30, 2) if own == "nothing" else (3, 30, 2)), generator=generator)
    new = torch.randn(9, 4, generator=generator)
    begun = started(4, WIDTHS, SEEDS, 2)
    kept = [part.clone() for part in begun]
    for step, networks in descend(begun, x, targets, rows, steps=40, batch_size=6, lr=0.02):
        found, last = networks, step
    assert last == 40
    assert all(torch.equal(a, b) for a, b in zip(kept, begun, strict=True))
    for m in range(3):
        model = alone(WIDTHS, SEEDS, m)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        n = 30 if rows is None else rows[m]
        for step in range(40):
            u = torch.rand(6, generator=Generator().manual_seed(mix(step, PURPOSE)), dtype=torch.float64)
            picked = (u * n).long()
            y = (targets if own == "nothing" else targets[m])[picked]
            optimizer.zero_grad()
            (model((x[m] if own == "all" else x)[picked]) - y).square().sum(1).mean().backward()
            optimizer.step()
        torch.testing.assert_close(found(new)[m], model(new), rtol=1e-4, atol=1e-5)
    assert torch.equal(found.hidden[0, :, 3:], torch.zeros(4, 4))
    assert torch.equal(found.output[0, 3:], torch.zeros(4, 2))


def test_a_network_begins_where_its_width_and_seed_say() -> None:
    one, other = started(4, [3], [1], 2), started(4, WIDTHS, SEEDS, 2)
    assert torch.equal(one.hidden[0], other.hidden[0, :, :3])
    assert not torch.equal(other.hidden[0, :, :3], other.hidden[1, :, :3])
    wide = started(25, [4000], [0], 3)
    assert float(wide.hidden.abs().max()) == pytest.approx(1 / 5, rel=1e-3)  # 1 / sqrt(fan in)
    assert float(wide.output.abs().max()) == pytest.approx(4000**-0.5, rel=1e-3)
    assert wide.parameters == 26 * 4000 + 4001 * 3
    assert float(wide.offset.abs().max()) == pytest.approx(1 / 5, rel=1e-3)
    many = started(25, [100], [0], 3000)
    assert float(many.bias.abs().max()) == pytest.approx(1 / 10, rel=1e-2)  # of the hidden units' number


@pytest.mark.parametrize(("widths", "seeds"), [([], []), ([3], [1, 2]), ([0, 2], [1, 2])])
def test_lists_that_disagree_are_refused(widths: list[int], seeds: list[int]) -> None:
    with pytest.raises(ValueError, match="a width of at least 1 and a seed"):
        started(4, widths, seeds, 2)


def test_the_loss_of_each_network() -> None:
    outputs = torch.tensor([[[1.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert squared(outputs, torch.zeros(2, 2)).tolist() == [2.5, 0.0]
