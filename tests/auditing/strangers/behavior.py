"""Strangers by what they do besides answering: draw, count, cache, overwrite, compute in their own way."""

import warnings

import torch
from torch import Tensor, nn

from auditing.strangers.case import PREDICTION, SLOPES, Around, Stranger, digits, mlp, trained

BOX = {"domain": (0.0, 1.0)}


def _net() -> nn.Sequential:
    x, y, _, _ = digits()
    return trained(mlp(64, 12, 10), x, y)


def _held() -> tuple[Tensor, Tensor]:
    return digits()[2:]


def _around(kind: type[nn.Module], **more: object) -> Stranger:
    return Stranger(model=kind(_net()).eval(), data=_held(), **({"options": BOX} | more))


class Counting(Around):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
        return self.inner(x)


def counts_in_a_buffer() -> Stranger:
    return _around(Counting, claims=(), says=("forward writes buffer 'average', 'calls'",))


class Lazy(Around):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.register_buffer("scale", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.ones(x.shape[1], dtype=x.dtype)
        return self.inner(x * self.scale)


def fills_a_buffer() -> Stranger:
    return _around(Lazy, says=("forward writes buffer 'scale'",))


class Caching(Around):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = self.inner(x)
        return self.last


def counts_and_caches_in_python() -> Stranger:
    return _around(Caching)


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.5, -0.2, *[0.0] * 8]))

    def forward(self, x: Tensor) -> Tensor:
        return self.bias + 0 * x[:, :10]


def constant() -> Stranger:
    return Stranger(model=Constant(), data=_held(), options=BOX)


class Undefined(Around):
    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x)
        return torch.where(x[:, 20:21] > 0.8, torch.nan, z)


def not_a_number_for_some() -> Stranger:
    return _around(Undefined, probabilities=None, status=1, claims=())


def memorizer() -> Stranger:
    torch.manual_seed(0)
    x, y = torch.rand(60, 20), torch.randint(4, (60,))
    return Stranger(
        model=trained(mlp(20, 64, 4), x, y, steps=150),
        data=(torch.rand(80, 20), torch.randint(4, (80,))),
        options={**BOX, "train": (x, y)},
    )


class Dropping(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(nn.functional.dropout(x, 0.1))


def drops_always() -> Stranger:
    return _around(Dropping, predict=None, says=("draws at random",))


class Noisy(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + 0.2 * torch.randn_like(x))


def adds_noise() -> Stranger:
    return _around(Noisy, predict=None, says=("draws at random",))


def left_in_training_mode() -> Stranger:
    net = _net()
    net.insert(2, nn.Dropout(0.5))
    net[2].train()
    return Stranger(model=net, data=_held(), options=BOX, says=("in training mode",))


class Centered(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


def reads_the_batch() -> Stranger:
    return _around(Centered, says=("read each other",), claims=(), status=1)


def double() -> Stranger:
    return Stranger(model=_net().double(), data=_held(), options=BOX)


def bfloat16() -> Stranger:
    return Stranger(model=_net().bfloat16(), data=_held(), options=BOX, rtol=0.02)


def float16() -> Stranger:
    return Stranger(model=_net().half(), data=_held(), options=BOX, rtol=0.003)


class Autocast(Around):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x).float()


def autocast() -> Stranger:
    return _around(Autocast, claims=(*PREDICTION, *SLOPES))


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: object, g: Tensor) -> Tensor:
        return g


class StraightThrough(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner[2](Sign.apply(self.inner[0](x)))


def straight_through() -> Stranger:
    return _around(StraightThrough)


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: object, g: Tensor) -> Tensor:
        return g * (ctx.saved_tensors[0] > 0)


class Once(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner[2](OnceDifferentiable.apply(self.inner[0](x)))


def differentiable_once() -> Stranger:
    return _around(
        Once, claims=(*PREDICTION, "curvature*", "linf.fgsm"), cannot=("marked once_differentiable",)
    )


class Branching(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x / max(1.0, x.abs().max().item()))


def branches_on_an_item() -> Stranger:
    return _around(Branching)


class Estimator(nn.Module):
    def __init__(self, estimator: object) -> None:
        super().__init__()
        self.estimator = estimator

    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.estimator.predict_proba(x.detach().numpy())).float()


def logistic_regression_in_numpy() -> Stranger:
    from sklearn.linear_model import LogisticRegression

    x, y, _, _ = digits()
    fitted = LogisticRegression(max_iter=300).fit(x.numpy(), y.numpy())
    return Stranger(
        model=Estimator(fitted), data=_held(), options=BOX, probabilities=lambda p: p.double(),
        says=("probabilities",),
    )  # fmt: skip


def forest_in_numpy() -> Stranger:
    from sklearn.ensemble import RandomForestClassifier

    x, y, _, _ = digits()
    fitted = RandomForestClassifier(10, random_state=0).fit(x.numpy(), y.numpy())
    return Stranger(
        model=Estimator(fitted), data=_held(), options=BOX, claims=PREDICTION,
        probabilities=lambda p: p.double(), says=("probabilities", "has probability 0"),
        cannot=("the mean is infinite",),
    )  # fmt: skip


def compiled() -> Stranger:
    return Stranger(
        model=torch.compile(_net(), backend="eager"), data=_held(), options=BOX, claims=(),
        says=("compiled",),
    )  # fmt: skip


def compiled_inside() -> Stranger:
    net = _net()
    net[0].compile(backend="eager")
    return Stranger(model=net, data=_held(), options=BOX, says=("compiled",))


def quantized() -> Stranger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(_net(), {nn.Linear}, torch.qint8)
    return Stranger(model=model, data=_held(), options=BOX)


def traced() -> Stranger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.trace(_net(), torch.rand(3, 64))
    return Stranger(model=model, data=_held(), options=BOX)


class Overwriting(Around):
    def forward(self, x: Tensor) -> Tensor:
        x *= 2
        return self.inner(x)


def overwrites_its_input() -> Stranger:
    return _around(Overwriting, says=("overwrites its input",))


class InPlace(Around):
    def forward(self, x: Tensor) -> Tensor:
        h = self.inner[0](x)
        h.mul_(2)
        return self.inner[2](h.relu_())


def in_place_on_its_own() -> Stranger:
    return _around(InPlace)


BEHAVIOR = (
    counts_in_a_buffer, fills_a_buffer, counts_and_caches_in_python, constant, not_a_number_for_some,
    memorizer, drops_always, adds_noise, left_in_training_mode, reads_the_batch, double, bfloat16, float16,
    autocast, straight_through, differentiable_once, branches_on_an_item, logistic_regression_in_numpy,
    forest_in_numpy, compiled, compiled_inside, quantized, traced, overwrites_its_input, in_place_on_its_own,
)  # fmt: skip
