"""Multilayer perceptrons: against the formula, their counts, batches of one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from margin import Training, load, train
from margin.data.open import open_data
from margin.feedforward.mlp.model import MLP, MLPRegressor
from margin.nn.activations import activation_of
from margin.nn.dense import Residual

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
        ({"hidden": (-3,)}, r"every width must be at least 1: got \[4, -3, 3\]"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\): got 1.0"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\): got -0.1"),
        ({"dropout": float("nan")}, r"dropout must be in \[0, 1\): got nan"),
        ({"input_dropout": 1.5}, r"input_dropout must be in \[0, 1\): got 1.5"),
        (
            {"hidden": (5, 6), "residual": "identity"},
            r"residual='identity' needs a hidden layer as wide as its input: got widths \[4, 5, 6, 3\]",
        ),
        ({"hidden": (), "residual": "identity"}, "needs a hidden layer as wide as its input"),
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


def test_the_defaults_build_what_they_always_built() -> None:
    torch.manual_seed(0)
    model = MLP(4, 3)
    torch.manual_seed(0)
    before = nn.Sequential(nn.Flatten(), nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 3))
    assert [type(module) for module in model.layers] == [type(module) for module in before]
    kept = {f"layers.{name}": tensor for name, tensor in before.state_dict().items()}
    assert list(model.state_dict()) == list(kept)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.state_dict().items())


OPTIONS = [
    {},
    {"hidden": ()},
    {"hidden": (5, 5, 6), "activation": "sigmoid", "residual": "identity"},
    {"hidden": (5, 5, 6), "activation": "gelu", "residual": "projection", "norm": "layer"},
    {"hidden": (5, 6), "norm": "batch", "dropout": 0.5, "input_dropout": 0.2},
    {"hidden": (5, 6), "norm": "weight"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [MLP, MLPRegressor])
def test_the_activations_recompute_one_another(kind: type, options: dict) -> None:
    torch.manual_seed(0)
    sizes = (4, 3) if kind is MLP else (4,)
    model = kind(*sizes, **options).double().eval()
    x = torch.randn(7, 2, 2, dtype=torch.float64)
    found = model.activations(x)
    hidden = options.get("hidden", (128,))
    assert [a.shape[1] for a in found] == [4, *hidden, sizes[1] if kind is MLP else 1]
    assert torch.equal(found[0], x.flatten(1))
    assert torch.equal(found[-1].reshape(model(x).shape), model(x))
    begins = [i for i, m in enumerate(model.layers) if isinstance(m, nn.Linear | Residual)]
    for i, (start, stop) in enumerate(zip(begins, [*begins[1:], len(model.layers)], strict=True)):
        assert torch.equal(model.layers[start:stop](found[i]), found[i + 1])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_batch_is_its_rows_one_by_one(options: dict) -> None:
    torch.manual_seed(0)
    model = MLP(4, 3, **options).double().eval()
    x = torch.randn(7, 4, dtype=torch.float64)
    assert torch.allclose(model(x), torch.cat([model(row[None]) for row in x]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("activation", [*FORMULAS, "gelu"])
def test_shortcuts_add_the_input_less_the_value_at_zero(activation: str) -> None:
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(4, 6), activation=activation, residual="projection").double()
    first, second = (module for module in model.layers if isinstance(module, Residual))
    phi, x = activation_of(activation), torch.randn(7, 4, dtype=torch.float64)
    zero = phi(torch.zeros((), dtype=torch.float64))
    one = x + phi(first.branch[0](x)) - zero
    two = one @ second.shortcut.weight.T + phi(second.branch[0](one)) - zero
    assert torch.allclose(model(x), model.layers[-1](two), rtol=0, atol=1e-13)
    for layer in (first, second):
        for parameter in layer.branch.parameters():
            nn.init.zeros_(parameter)
    assert torch.equal(model(x), model.layers[-1](x @ second.shortcut.weight.T))


def test_identity_shortcuts_join_equal_widths_alone() -> None:
    model = MLP(4, 3, hidden=(6, 6, 5), residual="identity")
    assert [type(module) for module in model.layers[1:4]] == [nn.Linear, nn.ReLU, Residual]
    assert sum(isinstance(module, Residual) for module in model.layers) == 1
    assert isinstance(model.layers[3].shortcut, nn.Identity)


def test_a_norm_of_the_weights_leaves_the_function_and_frees_the_length() -> None:
    torch.manual_seed(0)
    plain = MLP(4, 3, hidden=(6,)).double()
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(6,), norm="weight").double()
    x = torch.randn(7, 4, dtype=torch.float64)
    assert torch.allclose(model(x), plain(x), rtol=0, atol=1e-6)  # drawn in float32
    parameters = model.layers[1].parametrizations.weight
    before = model(x)
    with torch.no_grad():
        parameters.original1.mul_(3.0)
    assert torch.allclose(model(x), before, rtol=0, atol=1e-12)
    assert not hasattr(model.layers[-1], "parametrizations")


def test_a_run_with_a_norm_of_the_weights_is_loaded_as_it_was_trained(tmp_path: Path) -> None:
    training = Training(epochs=1, average=0.9, device="cpu")
    run = train("mlp", "two-moons", {"norm": "weight", "hidden": (5, 5)}, training, out=tmp_path / "run")
    again = train("mlp", "two-moons", {"norm": "weight", "hidden": (5, 5)}, training, out=tmp_path / "two")
    one, other = (load(r).state_dict() for r in (run, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert sum("original" in name for name in one) == 4


def test_input_dropout_drops_features_while_training_alone() -> None:
    torch.manual_seed(0)
    model = MLP(10_000, 2, hidden=(3,), input_dropout=0.2)
    x = torch.ones(1, 10_000)
    seen = model.train().activations(x)[0]
    assert torch.equal(model.eval().activations(x)[0], x)
    # the share's standard error is 0.004, four of them 0.016
    assert abs(float((seen > 0).float().mean()) - 0.8) <= 0.016
    assert torch.allclose(seen[seen > 0], torch.tensor(1.25))


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop = nn.Dropout(0.3)
    x = torch.linspace(1, 2, 40_000)
    # a mean of 40,000 values of deviation 1.5 sqrt(3/7): standard error 0.005, four of them 0.02
    assert abs(float(drop(x).mean() - x.mean())) <= 0.02
    assert torch.equal(drop.eval()(x), x)


def test_an_unknown_activation_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"activation must be one of relu, leaky_relu, .*: got 'rleu'"):
        train("mlp", "two-moons", {"activation": "rleu"}, out=tmp_path / "run")
