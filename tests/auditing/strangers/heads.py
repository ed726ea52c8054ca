"""Strangers by what they answer: logits, probabilities, one number, values."""

import torch
from torch import Tensor, nn

from auditing.strangers.case import PREDICTION, Around, Stranger, digits, mlp, table, trained

BOX = {"domain": (0.0, 1.0)}


def _digits_mlp() -> nn.Module:
    x, y, _, _ = digits()
    return trained(mlp(64, 12, 10), x, y)


def reference() -> Stranger:
    x, y, x_test, y_test = digits()
    return Stranger(
        model=_digits_mlp(), data=(x_test, y_test), options={**BOX, "train": (x, y)}, claims=()
    )  # fmt: skip


class Scaled(Around):
    def __init__(self, inner: nn.Module, x: Tensor) -> None:
        super().__init__(inner)
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner((x - self.mean) / self.std)


def scaler_inside_and_dropout() -> Stranger:
    x, y, x_test, y_test = table("wine")
    net = mlp(13, 16, 3)
    net.insert(2, nn.Dropout(0.2))
    model = trained(Scaled(net, x), x, y)
    return Stranger(model=model, data=(x_test.numpy(), y_test.numpy()))


def _binary() -> tuple[nn.Sequential, Tensor, Tensor, Tensor, Tensor]:
    x, y, x_test, y_test = table("breast_cancer")
    net = mlp(30, 8, 1)
    scaled = Scaled(net, x)
    trained(scaled, x, y.float()[:, None], loss=nn.functional.binary_cross_entropy_with_logits)
    return scaled, x, y, x_test, y_test


def _two(p: Tensor) -> Tensor:
    p = p.double().flatten()
    return torch.stack((1 - p, p), 1)


def one_logit_in_a_column() -> Stranger:
    model, x, y, x_test, y_test = _binary()
    return Stranger(
        model=model, data=(x_test, y_test), options={"task": "binary", "train": (x, y)}, claims=(),
        predict=lambda z: (z.flatten() > 0).long(), probabilities=lambda z: _two(z.double().sigmoid()),
        says=("(N, 1), read as one number",),
    )  # fmt: skip


class Squeezed(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).squeeze(-1)


def one_logit_squeezed() -> Stranger:
    model, _, _, x_test, y_test = _binary()
    return Stranger(
        model=Squeezed(model), data=(x_test, y_test), options={"task": "binary"},
        predict=lambda z: (z > 0).long(), probabilities=lambda z: _two(z.double().sigmoid()),
    )  # fmt: skip


def sigmoid_in_a_column() -> Stranger:
    model, x, y, x_test, y_test = _binary()
    return Stranger(
        model=nn.Sequential(model, nn.Sigmoid()), data=(x_test, y_test),
        options={"task": "probabilities", "train": (x, y)},
        predict=lambda p: (p.flatten() > 0.5).long(), probabilities=_two,
        says=("(N, 1), read as one number",),
    )  # fmt: skip


def sigmoid_squeezed() -> Stranger:
    model, _, _, x_test, y_test = _binary()
    return Stranger(
        model=nn.Sequential(Squeezed(model), nn.Sigmoid()), data=(x_test, y_test),
        options={"task": "probabilities"}, predict=lambda p: (p > 0.5).long(), probabilities=_two,
    )  # fmt: skip


def halfspace() -> Stranger:
    model, _, _, x_test, y_test = _binary()
    return Stranger(
        model=model, data=(x_test, y_test), options={"task": "halfspace"},
        predict=lambda z: (z.flatten() > 0).long(), probabilities=None,
    )  # fmt: skip


def softmax() -> Stranger:
    _, _, x, y = digits()
    return Stranger(
        model=nn.Sequential(_digits_mlp(), nn.Softmax(1)), data=(x, y), probabilities=lambda p: p.double(),
        says=("probabilities, because every row sums to 1",),
    )  # fmt: skip


def log_softmax() -> Stranger:
    _, _, x, y = digits()
    return Stranger(
        model=nn.Sequential(_digits_mlp(), nn.LogSoftmax(1)), data=(x, y),
        probabilities=lambda z: z.double().exp() / z.double().exp().sum(1, keepdim=True),
        says=("log-probabilities, because the exponentials of every row sum to 1",),
    )  # fmt: skip


def one_vs_rest() -> Stranger:
    x, y, x_test, y_test = digits()
    hot = nn.functional.one_hot(y, 10).float()
    net = trained(mlp(64, 32, 10), x, hot, loss=nn.functional.binary_cross_entropy_with_logits, steps=120)
    return Stranger(
        model=nn.Sequential(net, nn.Sigmoid()), data=(x_test, y_test),
        options={"task": "probabilities", **BOX, "train": (x, y)},
        probabilities=lambda p: p.double() / p.double().sum(1, keepdim=True),
        says=("each class against the rest",),
    )  # fmt: skip


def logits_within_0_and_1() -> Stranger:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.mul_(0.1)
        model.bias.fill_(0.5)
    x = torch.rand(60, 4)
    return Stranger(model=model, data=(x, torch.arange(60) % 3), options={"task": "logits"})


def regression() -> Stranger:
    x, y, x_test, y_test = table("diabetes")
    scale = float(y.std())
    net = trained(mlp(10, 16, 1), x, (y.float()[:, None] - y.mean()) / scale, loss=nn.functional.mse_loss)
    with torch.no_grad():
        net[-1].weight.mul_(scale)
        net[-1].bias.mul_(scale).add_(float(y.mean()))
    return Stranger(
        model=Squeezed(net), data=(x_test, y_test.float()), options={"train": (x, y.float())}, claims=(),
        predict=lambda v: v, probabilities=None, says=("task: values",),
    )  # fmt: skip


def two_values() -> Stranger:
    x, y, x_test, y_test = table("diabetes")
    both, both_test = (torch.stack((v, v / 2), 1).float() / 100 for v in (y, y_test))
    net = trained(mlp(10, 16, 2), x, both, loss=nn.functional.mse_loss)
    return Stranger(model=net, data=(x_test, both_test), predict=lambda v: v, probabilities=None)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(32, 16), nn.Linear(32, 16)
        self.out = nn.Linear(16, 10)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.out((self.left(a) * self.right(b)).tanh())


def two_inputs() -> Stranger:
    x, y, x_test, y_test = digits()
    model = trained(TwoInputs(), (x[:, :32], x[:, 32:]), y)
    return Stranger(model=model, data=((x_test[:, :32], x_test[:, 32:]), y_test), options=BOX)


def text_targets() -> Stranger:
    import numpy as np

    x, y, x_test, y_test = table("wine")
    names = ("barolo", "grignolino", "barbera")
    model = trained(Scaled(mlp(13, 8, 3), x), x, y)
    return Stranger(
        model=model, data=(x_test, np.array(names)[y_test.numpy()]), options={"class_names": names},
        labels=y_test,
    )  # fmt: skip


def many_classes() -> Stranger:
    torch.manual_seed(0)
    x = torch.randn(200, 16)
    return Stranger(model=nn.Linear(16, 300), data=(x, torch.arange(200) * 7 % 300), claims=PREDICTION)


HEADS = (
    reference, scaler_inside_and_dropout, one_logit_in_a_column, one_logit_squeezed, sigmoid_in_a_column,
    sigmoid_squeezed, halfspace, softmax, log_softmax, one_vs_rest, logits_within_0_and_1, regression,
    two_values, two_inputs, text_targets, many_classes,
)  # fmt: skip
