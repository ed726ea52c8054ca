"""The empirical tangent kernel, three ways, beside a loop of automatic differentiation."""

import copy

import pytest
import torch
from torch import Tensor, nn

from margin.engine.evaluation import same_bits
from margin.theory.kernels.empirical import empirical_ntk, ntk_plan
from margin.theory.kernels.structured import Layers

METHODS = ("jacobian", "products", "structured")


def brute(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """One backward pass for each output of each example, of the model in evaluation mode."""
    model = copy.deepcopy(model).eval()
    weights = [p for p in model.parameters() if p.requires_grad]

    def rows(x: Tensor) -> Tensor:
        found = [
            [
                torch.cat(
                    [
                        g.reshape(-1)
                        for g in torch.autograd.grad(
                            v, weights, retain_graph=True, allow_unused=True, materialize_grads=True
                        )
                    ]
                )
                for v in model(x[i : i + 1]).reshape(-1)
            ]
            for i in range(len(x))
        ]
        return torch.stack([torch.stack(row) for row in found])

    return torch.einsum("iap,jbp->iajb", rows(x), rows(y))


class Shared(nn.Module):
    """A weight that two layers share, one that is used outside of its layer, and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.rand(6))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.second(torch.relu(self.first(x)))) * self.scale
        return self.last(h) @ self.last.weight[:, :2]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(x)[0][:, -1])


def convolutional() -> nn.Module:
    net = nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        *(nn.Conv2d(4, 6, 3, bias=False), nn.GroupNorm(2, 6), nn.Tanh(), nn.Flatten(), nn.Dropout()),
        *(nn.LayerNorm(24), nn.Linear(24, 3)),
    )
    with torch.no_grad():
        net[1].running_mean.normal_()
        net[1].running_var.uniform_(0.5, 2)
    return net


CASES = {
    "convolutional": (convolutional, (2, 8, 8)),
    "grouped": (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, 2)),
        (4, 4, 4),
    ),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.LayerNorm(7), nn.Flatten(), nn.Linear(21, 2)),
        (3, 5),
    ),
    "one number": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3, dilation=2), nn.Tanh(), nn.Flatten(), nn.Linear(24, 1), nn.Flatten(0)
        ),
        (3, 10),
    ),
    "shared": (Shared, (6,)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (3, 8)),
    "recurrent": (Recurrent, (6, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_all_ways_are_the_brute_force(name) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    model = make().double().train()
    x, y = torch.randn(5, *shape).double(), torch.randn(4, *shape).double()
    expected, own = brute(model, x, y), brute(model, x, x)
    for method in METHODS:
        if method == "products" and name in ("attention", "recurrent"):
            with pytest.raises(ValueError, match="products with vectors need a model"):
                empirical_ntk(model, x, method=method)
            continue
        scale = float(expected.abs().max())
        found = empirical_ntk(model, x, y, method=method)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * scale)
        torch.testing.assert_close(empirical_ntk(model, x, method=method), own, rtol=0, atol=1e-10 * scale)
        mean = torch.einsum("iaja->ij", own) / own.shape[1]
        found = empirical_ntk(model, x, outputs="mean", method=method)
        torch.testing.assert_close(found, mean, rtol=0, atol=1e-10 * scale)
    assert model.training


def test_structure_is_found_where_it_is_and_nowhere_else() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 8, 8)
    assert not Layers(convolutional().eval(), (x,)).rest
    # of the shared weights none is an outer product: both layers' gradients are in one sum
    rest = Layers(Shared(), (torch.randn(2, 6),)).rest
    assert {"scale", "first.weight", "last.weight"} <= rest.keys()


def test_chunks_change_nothing(monkeypatch) -> None:
    torch.manual_seed(0)
    model = convolutional().double()
    x, y = torch.randn(9, 2, 8, 8).double(), torch.randn(7, 2, 8, 8).double()
    monkeypatch.setattr("margin.theory.kernels.empirical.BLOCK", 3)
    for method in METHODS:
        whole, own = empirical_ntk(model, x, y, method=method), empirical_ntk(model, x, method=method)
        for outputs in ("all", "mean"):
            kernel = (27 * 21 if outputs == "all" else 9 * 7) * 8
            each = {"jacobian": 3 * 435 * 8, "structured": 8700, "products": 40000}[method]
            memory = kernel + 6 * each
            plan = ntk_plan(model, x, y, outputs=outputs, method=method, memory=memory)
            assert plan.chunk < 7
            found = empirical_ntk(model, x, y, outputs=outputs, method=method, memory=memory)
            expected = whole if outputs == "all" else torch.einsum("iaja->ij", whole) / 3
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
            memory += 27 * 27 * 8
            found = empirical_ntk(model, x, outputs=outputs, method=method, memory=memory)
            expected = own if outputs == "all" else torch.einsum("iaja->ij", own) / 3
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
            assert torch.equal(found, found.permute(2, 3, 0, 1) if outputs == "all" else found.T) or (
                method == "products"
            )


def test_a_linear_model_has_the_gram_matrix_of_its_inputs() -> None:
    """Spec: K = X X', and a bias adds 1; a frozen one adds nothing. Positive semidefinite of rank d + 1."""
    x = torch.randn(12, 4).double()
    model = nn.Linear(4, 1).double()
    torch.testing.assert_close(empirical_ntk(model, x, outputs="mean"), x @ x.T + 1)
    values = torch.linalg.eigvalsh(empirical_ntk(model, x).reshape(12, 12))
    assert float(values.min()) > -1e-10
    assert int((values > 1e-10).sum()) == 5
    model.bias.requires_grad_(False)
    for method in METHODS:
        torch.testing.assert_close(empirical_ntk(model, x, outputs="mean", method=method), x @ x.T)


def test_the_cheapest_way_is_chosen_by_cost() -> None:
    """Novak et al. 2022, Table 1: of a dense layer the structure costs n^2 C^2 units, not n^2 C^2 weights."""
    net = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))
    plan = ntk_plan(net, torch.randn(50, 300))
    assert plan.method == "structured"
    assert plan.costs["structured"] < plan.costs["jacobian"] / 20
    assert "structured: 977 KiB for the kernel" in str(plan)
    # of many outputs of a model without structure a product with a vector is cheaper than a Jacobian
    bare = nn.Sequential(nn.Conv2d(8, 8, 1, groups=8), nn.Flatten())
    assert ntk_plan(bare, torch.randn(50, 8, 3, 3)).method == "products"


def test_it_leaves_no_trace() -> None:
    model = convolutional().train()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.get_rng_state()
    for method in METHODS:
        empirical_ntk(
            model, torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(0)), method=method
        )
    assert all(same_bits(t, before[name]) for name, t in model.state_dict().items())
    assert bool((model[3].weight.grad == 1).all())
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks for m in model.modules())


def test_half_precision_is_copied_to_float32() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(torch.bfloat16)
    x = torch.randn(5, 4)
    found = empirical_ntk(model, x.to(torch.bfloat16))
    assert found.dtype == torch.float32
    expected = brute(
        copy.deepcopy(model).double(), x.to(torch.bfloat16).double(), x.to(torch.bfloat16).double()
    )
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert model[0].weight.dtype == torch.bfloat16


class Centered(nn.Module):
    """It subtracts the mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x - x.mean(0))


class Two(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x), x


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            nn.Linear(4, 2).requires_grad_(False),
            {},
            "needs weights that require a gradient: the model has none",
        ),
        (Centered(), {}, "an example's outputs must not depend on the other examples"),
        (Two(4, 2), {}, "needs a tensor of real outputs, a row for each of 2 examples: got tuple"),
        (
            nn.Linear(4, 2),
            {"memory": 1000},
            r"3 x 3 examples and 2 outputs must fit in 1000 bytes: it needs 144 bytes, and 6.29 KiB for an",
        ),
    ],
)
def test_bad_input_is_refused(model, options, message) -> None:
    if "memory" in options:
        model = nn.Linear(400, 2)
    with pytest.raises(ValueError, match=message):
        empirical_ntk(model, torch.randn(3, 400 if "memory" in options else 4), **options)
