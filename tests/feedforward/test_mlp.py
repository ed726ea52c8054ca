"""Multilayer perceptrons: against the formula, their counts, batches of one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from margin import Training, train
from margin.data.opening import open_data
from margin.feedforward.mlp import MLP, MLPRegressor

FORMULAS = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "identity": lambda z: z,
}


@pytest.mark.parametrize("activation", FORMULAS)
def test_the_outputs_are_the_composition(activation: str) -> None:
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(5, 6), activation=activation).double()
    x = torch.randn(7, 4, dtype=torch.float64)
    z = x.numpy()
    *hidden, last = [m for m in model.layers if isinstance(m, torch.nn.Linear)]
    for layer in hidden:
        z = FORMULAS[activation](z @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
    z = z @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    assert np.allclose(model(x).detach().numpy(), z, atol=1e-12)


def test_a_layer_has_m_times_n_plus_one_parameters() -> None:
    model = MLP(784, 10, hidden=(128,))
    assert sum(p.numel() for p in model.parameters()) == 128 * 785 + 10 * 129
    assert sum(p.numel() for p in MLP(4, 3, hidden=()).parameters()) == 15


def test_images_are_flattened() -> None:
    model = MLP(64, 10)
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(model(x), model(x.flatten(1)))


def test_a_regressor_gives_one_number_a_row() -> None:
    assert MLPRegressor(4)(torch.randn(3, 4)).shape == (3,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (8, 0)}, "every width must be at least 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLP(4, 3, **options)


def test_a_last_batch_of_one_trains_with_batch_normalization(tmp_path: Path) -> None:
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = open_data((x, (x[:, 0] > 0).long()), {"test": 0.0, "val": 0.0})
    assert len(data.splits["train"]) % 59 == 1
    run = train("mlp", data, {"norm": "batch"}, Training(epochs=2, batch_size=59), out=tmp_path / "run")
    assert run.reason == "max_steps"


def test_gelu_is_x_times_the_normal_distribution_function() -> None:
    torch.manual_seed(0)
    model = MLP(1, 1, hidden=(1,), activation="gelu").double()
    for parameter, value in zip(model.parameters(), (1.0, 0.0, 1.0, 0.0), strict=True):
        torch.nn.init.constant_(parameter, value)
    z = np.linspace(-3, 3, 13)
    found = model(torch.from_numpy(z)[:, None]).detach().numpy()[:, 0]
    assert np.allclose(found, z * stats.norm.cdf(z), atol=1e-12)


def test_the_norm_comes_before_the_activation() -> None:
    torch.manual_seed(0)
    x = torch.randn(9, 4, dtype=torch.float64)
    for norm, axis in (("layer", 1), ("batch", 0)):
        model = MLP(4, 3, hidden=(6,), norm=norm).double()
        first, last = (m for m in model.layers if isinstance(m, torch.nn.Linear))
        z = x.numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy()
        z = (z - z.mean(axis, keepdims=True)) / np.sqrt(z.var(axis, keepdims=True) + 1e-5)
        expected = np.maximum(z, 0) @ last.weight.detach().numpy().T + last.bias.detach().numpy()
        assert np.allclose(model(x).detach().numpy(), expected, atol=1e-10), norm


@pytest.mark.parametrize("kind", [MLP, MLPRegressor])
def test_dropout_drops_its_share_while_training_alone(kind: type) -> None:
    torch.manual_seed(0)
    sizes = (4, 3) if kind is MLP else (4,)
    model = kind(*sizes, hidden=(5000,), dropout=0.25)
    seen = []
    model.layers[-1].register_forward_hook(lambda module, inputs, outputs: seen.append(inputs[0]))
    x = torch.randn(1, 4)
    model.eval()(x)
    model.train()(x)
    alive, kept = seen[0] > 0, seen[1] > 0
    # about 2500 units are alive: the share's standard error is 0.009, four of them 0.035
    assert abs(float(kept[alive].float().mean()) - 0.75) <= 0.035
    assert torch.allclose(seen[1][kept], seen[0][kept] / 0.75)


@pytest.mark.parametrize("activation", FORMULAS)
def test_a_regressor_is_the_same_composition(activation: str) -> None:
    torch.manual_seed(0)
    model = MLPRegressor(4, hidden=(5,), activation=activation).double()
    x = torch.randn(7, 4, dtype=torch.float64)
    first, last = (m for m in model.layers if isinstance(m, torch.nn.Linear))
    z = FORMULAS[activation](x.numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy())
    expected = z @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    assert np.allclose(model(x).detach().numpy(), expected[:, 0], atol=1e-12)
