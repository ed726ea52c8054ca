"""Strangers by how they are called and kept: with a memory, in a wrapper, as a script, without gradients."""

import warnings

import torch
from torch import Tensor, nn

from auditing.strangers.case import PREDICTION, SLOPES, Around, Stranger, digits, mlp, trained

BOX = {"domain": (0.0, 1.0)}


def _net() -> nn.Module:
    x, y, _, _ = digits()
    return trained(mlp(64, 12, 10), x, y)


def _held() -> tuple[Tensor, Tensor]:
    return digits()[2:]


def _around(kind: type[nn.Module], **more: object) -> Stranger:
    return Stranger(model=kind(_net()).eval(), data=_held(), **({"options": BOX} | more))


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.out, self.state = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 10), None

    def forward(self, x: Tensor) -> Tensor:
        fits = self.state is not None and self.state.shape[1] == len(x)
        h, last = self.gru(x.view(-1, 8, 8), self.state if fits else None)
        self.state = last.detach()
        return self.out(h[:, -1])


def keeps_its_state() -> Stranger:
    return Stranger(
        model=Remembering().eval(), data=_held(), options=BOX, says=("what it keeps of the calls before",),
        claims=(*PREDICTION, *SLOPES, "curvature.sharpness"),
    )  # fmt: skip


class Averaging(Around):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.register_buffer("shift", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x - self.shift)
        self.shift.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return z


def shifts_by_a_buffer() -> Stranger:
    return _around(Averaging, says=("what it keeps of the calls before", "forward writes buffer 'shift'"))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(0.1 * torch.randn(64, 10, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.cfloat) @ self.weight).abs()


def complex_weights() -> Stranger:
    x, y, _, _ = digits()
    return Stranger(model=trained(Complex(), x, y), data=_held(), options=BOX, claims=())


class Wide(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).double()


def answers_in_float64() -> Stranger:
    return _around(Wide, claims=())


def scripted() -> Stranger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch advises against scripts; people have them
        model = torch.jit.script(_net())
    return Stranger(
        model=model, data=_held(), options=BOX, claims=(),
        cannot=("not supported on ScriptModules",),
    )  # fmt: skip


def data_parallel() -> Stranger:
    return Stranger(
        model=nn.DataParallel(_net()), data=_held(), options=BOX, says=("stands in DataParallel",)
    )


class Told(Around):
    def forward(self, x: Tensor) -> Tensor:
        z = self.inner(x)
        return z if torch.is_grad_enabled() else z + torch.arange(10.0) / 2


def depends_on_the_gradient_mode() -> Stranger:
    return _around(Told, says=("otherwise while torch records gradients",))


NO_GRADIENT = ("does not require grad", "no gradient comes back", "there is no direction of descent")


class Without(Around):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inner(x)


def without_gradients() -> Stranger:
    return _around(Without, claims=(), cannot=NO_GRADIENT)


class Inferring(Around):
    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.inner(x)


def in_inference_mode() -> Stranger:
    return _around(Inferring, claims=(), cannot=NO_GRADIENT)


class Masked(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).index_fill(1, torch.tensor([9]), -torch.inf)


def a_class_ruled_out() -> Stranger:
    x, y = _held()
    model = Masked(_net()).eval()
    return Stranger(model=model, data=(x[y != 9], y[y != 9]), options=BOX, claims=())


def weight_norm() -> Stranger:
    x, y, _, _ = digits()
    net = mlp(64, 12, 10)
    nn.utils.parametrizations.weight_norm(net[0])
    nn.utils.parametrizations.spectral_norm(net[2])
    return Stranger(model=trained(net, x, y), data=_held(), options=BOX)


def frozen() -> Stranger:
    return Stranger(model=_net().requires_grad_(False), data=_held(), options=BOX)


def _exported(as_module: bool) -> Stranger:
    net = _net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, (torch.rand(3, 64),), dynamic_shapes=({0: torch.export.Dim("n")},))
    return Stranger(
        model=program.module() if as_module else program, data=_held(), options=BOX,
        says=("a program of torch.export",), own=net,
    )  # fmt: skip


def exported_program() -> Stranger:
    return _exported(as_module=False)


def exported_module() -> Stranger:
    return _exported(as_module=True)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.out = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x.view(-1, 8, 8))[1][0][-1])


def lstm() -> Stranger:
    x, y, _, _ = digits()
    return Stranger(
        model=trained(Recurrent(), x, y, steps=30), data=_held(), options=BOX,
        claims=(*PREDICTION, "regions.*"),
        lacks={"regions.in_plane": "layer 'lstm' (LSTM) is not piecewise linear: tanh or gates"},
    )  # fmt: skip


def quantized_by_batch() -> Stranger:
    x, y = _held()
    x = torch.cat((x, 2 * x[:1]))  # the largest number of a batch decides how it rounds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(_net(), {nn.Linear}, torch.qint8)
    return Stranger(model=model, data=(x, torch.cat((y, y[:1]))), measured=True)


def tokens() -> Stranger:
    x = torch.randint(20, (60, 5), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(20, 3)).eval()
    return Stranger(
        model=model, data=(x, x[:, 0] % 3), claims=(*PREDICTION, "regions.*", "robust/*"),
        lacks=dict.fromkeys(("regions.in_plane", "linf.fgsm", "linf.sandwich"), "inputs are tokens"),
    )  # fmt: skip


CALLS = (
    keeps_its_state, shifts_by_a_buffer, complex_weights, answers_in_float64, scripted, data_parallel,
    depends_on_the_gradient_mode, without_gradients, in_inference_mode, a_class_ruled_out, weight_norm,
    frozen, exported_program, exported_module, lstm, quantized_by_batch, tokens,
)  # fmt: skip
