"""Gradients by the input alone: torch's own to rounding, and no other gradient is changed."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.attacks import pullbacks
from margin.robust.attacks.gradient import Search, input_gradient, pgd
from margin.robust.attacks.linear_models import rival_slopes
from margin.robust.attacks.pullbacks import few_channels, pullback
from margin.robust.attacks.threat_models import Threat

SHAPES = (
    {"kernel_size": 4, "stride": 2, "padding": 1},
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "padding": (2, 0)},
    {"kernel_size": (1, 3), "stride": (2, 1), "padding": (0, 1)},
    {"kernel_size": 3, "dilation": (2, 1), "padding": 2},
    {"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 1},
    {"kernel_size": 2, "stride": 3},
    {"kernel_size": 5, "stride": 5, "padding": (0, 2)},
    {"kernel_size": 3, "bias": False},
    {"kernel_size": 3, "padding": "same"},
    {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
)


def drawn(*shape: int, kind: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(1), dtype=torch.float64).to(kind)


def fast(model: nn.Module, x: Tensor) -> tuple[Tensor, str]:
    """The gradient of a weighted sum of the outputs, and by what the first layer is differentiated."""
    y = x.clone().requires_grad_()
    with few_channels(model):
        out = model(y)
        found = pullback((out * drawn(*out.shape).to(out)).sum(), y)
    return found, type(out.grad_fn).__name__


def slow(model: nn.Module, x: Tensor) -> Tensor:
    y = x.double().requires_grad_()
    twin = model.double()
    out = twin(y)
    (found,) = torch.autograd.grad((out * drawn(*out.shape)).sum(), y)
    return found


@pytest.mark.parametrize("kind", [torch.float64, torch.float32])
@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_are_those_of_torch(shape: dict, channels: int, kind: torch.dtype) -> None:
    """Sides and kernels that differ tell axes apart; 11 is no multiple of a stride."""
    torch.manual_seed(0)
    model, x = nn.Conv2d(channels, 6, **shape).to(kind), drawn(3, channels, 11, 14, kind=kind)
    found, how = fast(model, x)
    assert ("Convolved" in how) == (channels <= 4 and shape.get("padding") != "same")
    assert found.dtype == kind
    torch.testing.assert_close(
        found.double(), slow(model, x), rtol=0, atol=1e-12 if kind == x.double().dtype else 1e-4
    )


@pytest.mark.parametrize("model", [nn.Conv2d(2, 4, 3, groups=2), nn.Conv1d(1, 4, 3), nn.Conv3d(1, 4, 3)])
def test_other_convolutions_are_left_to_torch(model: nn.Module) -> None:
    x = drawn(2, model.in_channels, *(7, 6, 5)[: model.weight.ndim - 2])
    found, how = fast(model.double(), x)
    assert "Convolved" not in how
    torch.testing.assert_close(found, slow(model, x), rtol=0, atol=1e-12)


def test_an_image_alone_without_a_batch_is_left_to_torch() -> None:
    model, x = nn.Conv2d(1, 2, 3).double(), drawn(1, 6, 7)
    torch.testing.assert_close(fast(model, x)[0], slow(model, x), rtol=0, atol=1e-12)


class Follows(nn.Module):
    """A convolution, and one step along a gradient of its own by the weights, as in training at test time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = self.layer(x).square().sum()
            (step,) = torch.autograd.grad(loss, self.layer.weight, create_graph=True)
        return F.conv2d(x, self.layer.weight - 0.1 * step)


class Energy(Follows):
    """The slope of an energy by the input."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return torch.autograd.grad(self.layer(x).tanh().square().sum(), x, create_graph=True)[0]


class Mapped(Follows):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.vmap(lambda one: self.layer(one[None])[0])(x)


class Forward(Follows):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.jvp(self.layer, (x,), (x * x,))[1]


class Saved(Follows):
    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda y: self.layer(y).tanh(), x, use_reentrant=False)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("kind", [Follows, Energy, Mapped, Forward, Saved])
def test_models_that_differentiate_by_themselves_are_followed(kind: Callable[[], nn.Module]) -> None:
    """The weights' own gradient would be missing, were every backward pass one by the input alone."""
    torch.manual_seed(0)
    model, x = kind().double(), drawn(2, 1, 6, 5)
    torch.testing.assert_close(fast(model, x)[0], slow(model, x), rtol=1e-10, atol=1e-12)


def test_backward_through_the_mode_reaches_the_weights() -> None:
    model, x = nn.Conv2d(1, 3, 3).double(), drawn(2, 1, 6, 5)
    with few_channels(model):
        model(x.requires_grad_()).square().sum().backward()
    found = [x.grad, model.weight.grad, model.bias.grad]
    x.grad = model.weight.grad = model.bias.grad = None
    model(x).square().sum().backward()
    for own, plain in zip(found, (x.grad, model.weight.grad, model.bias.grad), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-12, atol=1e-12)


def test_a_pullback_writes_no_gradient() -> None:
    model, x = nn.Conv2d(1, 3, 3), torch.rand(2, 1, 6, 5)
    fast(model, x)
    assert model.weight.grad is None and x.grad is None


def test_what_does_not_depend_on_the_input_has_gradient_0() -> None:
    y, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for total in (other.sum(), torch.ones(())):
        assert torch.equal(pullback(total, y), torch.zeros(3))


def test_a_compiled_model_is_asked_as_it_was_compiled() -> None:
    model = nn.Conv2d(1, 3, 3)
    assert isinstance(few_channels(model), pullbacks._Watch)
    model._compiled_call_impl = model.forward
    assert not isinstance(few_channels(model), pullbacks._Watch)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_traced_models_are_followed_as_they_are() -> None:
    model, x = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU()).double(), drawn(2, 1, 6, 5)
    for twin in (torch.jit.trace(model, x), torch.fx.symbolic_trace(model)):
        torch.testing.assert_close(fast(twin, x)[0], slow(model, x), rtol=1e-12, atol=1e-12)


def test_attacks_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every attack that follows gradients: the way back is taken, and the gradient is that without it."""
    taken = []
    monkeypatch.setattr(pullbacks, "_overlapped", lambda *given: taken.append(1) or overlapped(*given))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)).double().eval()
    batch = Batch((drawn(5, 1, 6, 5).sigmoid(),), torch.tensor([0, 1, 2, 0, 1]))
    rivals = torch.tensor([[1], [2], [0], [1], [0]])
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.1)

    def asked() -> list[Tensor]:
        draws = Generator().manual_seed(0)
        return [
            input_gradient(model, batch, risk(CLASSES), draws).gradient,
            rival_slopes(model, batch, CLASSES, rivals).slopes,
            pgd(model, batch, risk(CLASSES), threat, draws, search=Search(steps=3)).loss,
        ]

    found, count = asked(), len(taken)
    assert count == 1 + 1 + 3
    monkeypatch.setattr(pullbacks, "FEW", 0)
    for own, plain in zip(found, asked(), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-12)
    assert len(taken) == count


overlapped = pullbacks._overlapped
