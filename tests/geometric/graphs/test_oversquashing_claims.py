"""Derivatives by distant nodes against the bound: of convolutions, of what looks like them, of others."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Verdict
from margin.engine.evaluation import in_double
from margin.geometric.graphs import oversquashing_claims as c
from margin.geometric.graphs.coupling_claims import small_gcn
from margin.geometric.graphs.gcn import GCNLayer
from margin.geometric.graphs.layers import listened

SMALL = small_gcn(layers=3)


class Chain(nn.Module):
    """Convolutions with something between them."""

    def __init__(self, between, layers: int = 2, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GCNLayer(width, width) for _ in range(layers))
        self.between = between

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.between(layer(x, edge_index, edge_attr), x)
        return x


def of(model: nn.Module):
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        for module in model.modules():
            if isinstance(module, GCNLayer):
                nn.init.normal_(module.bias)
    return replace(SMALL, model=model)


def test_the_bound_holds_at_every_distance() -> None:
    found = c.jacobian(SMALL)
    assert found.verdict is Verdict.HOLDS
    assert found.labels == ("0 steps", "1 steps", "2 steps", "3 steps")
    assert bool((found.value > 0).all())
    assert bool((found.high[1:] < found.high[:-1]).all())


@pytest.mark.parametrize("act", [lambda z, x: z.relu(), lambda z, x: z.tanh(), lambda z, x: z])
def test_known_activations_are_seen(act) -> None:
    found = c.jacobian(of(Chain(act)))
    assert found.verdict is Verdict.HOLDS
    assert [premise.status for premise in found.premises] == ["sampled"] * 3


def test_it_is_tight_without_activation_and_with_one_feature() -> None:
    """|W| is |w|, nothing is cut, and every way counts: the bound is the derivative."""
    batch = SMALL.test[0]
    x, *rest = batch.inputs
    subject = of(Chain(lambda z, x: z, layers=2, width=1))
    found = c.jacobian(replace(subject, test=[batch._replace(inputs=(x[:, :1], *rest))]))
    torch.testing.assert_close(found.value, found.high, rtol=1e-8, atol=0)
    assert found.verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("act", "layer"),
    [
        (lambda z, x: z.relu() + x, "layers.1"),  # a residual
        (lambda z, x: 3 * z.relu(), "layers.1"),  # 3-Lipschitz
        (lambda z, x: z.relu() - z.relu().mean(0), "layers.1"),  # nodes are coupled
    ],
)
def test_a_broken_premise_is_refused_naming_the_layer(act, layer: str) -> None:
    found = c.jacobian(of(Chain(act)))
    assert found.verdict is Verdict.UNFOUNDED
    assert layer in next(premise.evidence for premise in found.premises if premise.status == "refuted")


def test_a_layer_that_does_something_else_is_refused() -> None:
    class Louder(GCNLayer):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            return 2 * super().forward(x, edge_index, edge_attr)

    model = Chain(lambda z, x: z.relu())
    model.layers[1] = Louder(4, 4)
    found = c.jacobian(of(model))
    assert found.verdict is Verdict.UNFOUNDED
    assert "layers.1 does not give" in found.premises[1].evidence


def test_other_layers_are_measured() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Mean()

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, sizes: Tensor) -> Tensor:
            return self.layer(x, edge_index)

    found = c.jacobian(replace(SMALL, model=Model()))
    assert found.verdict is Verdict.MEASURED
    assert found.value.tolist() == [0.0, 1.0]


def test_the_measured_derivative_is_autograd_s() -> None:
    found = listened(SMALL)
    inputs = found.inputs
    model = in_double(SMALL.model)
    whole = torch.autograd.functional.jacobian(lambda x: model(x, *inputs[1:])[4], inputs[0].detach())
    expected = torch.linalg.matrix_norm(whole.movedim(1, 0), ord=2)
    torch.testing.assert_close(c.measured(found, 4), expected)


def test_a_nan_fails() -> None:
    subject = of(Chain(lambda z, x: z))
    with torch.no_grad():
        subject.model.layers[0].linear.weight[0, 0] = torch.nan
    found = c.jacobian(subject)
    assert found.verdict is not Verdict.HOLDS
    assert found.failure == "a derivative is not finite"
