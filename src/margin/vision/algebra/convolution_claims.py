"""What theory says of each convolution of a model, on what the held-out images give it.

True of every convolution, so asked by name: it commutes with shifts where it is periodic and steps by one; it
is known by its impulse responses; it is a product of Fourier transforms; its gradients are convolutions; the
order of its channels tells nothing; it stretches no input more than its operator norm.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch, unseen
from margin.engine.evaluation import capture, drawn_rows, eval_mode, in_double
from margin.engine.loop import risk
from margin.vision.algebra.fields import WHOLE, extent, followed, measured_support, not_finite
from margin.vision.algebra.layers import Arrangement, convolution_backward
from margin.vision.algebra.operator_norm import norm_bounds

EXAMPLES = 2
"""Images of which an identity is asked."""

ROUNDING = 1e-10
"""In parts of the largest output, in float64: a Fourier transform spreads its rounding over all places."""


class Convolved(NamedTuple):
    """A convolution inside a model, in float64, and what held-out images gave it."""

    name: str
    layer: nn.Conv2d
    x: Tensor


def has_convolutions(subject: Subject) -> bool:
    """Whether layers of the model are convolutions of images."""
    return any(isinstance(module, nn.Conv2d) for module in subject.model.modules())


@torch.no_grad()
def convolutions(subject: Subject) -> list[Convolved]:
    """The convolutions that held-out images reach, each at its first call."""
    model = in_double(subject.model)
    names = {m: name or "the model" for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    inputs = [x.double() for x in drawn_rows(subject.test, EXAMPLES).batches[0].inputs]
    with eval_mode(model), capture(names) as calls:
        model(*(x[:EXAMPLES] for x in inputs))
    first = {call.module: call for call in reversed(calls) if isinstance(call.module, nn.Conv2d)}
    seen = {m: call.args[0].detach() for m, call in first.items() if call.args and not unseen(call.args[0])}
    found = [Convolved(names[m], m, seen[m]) for m in names if m in seen]
    if not found:
        raise NotAsked("no convolution is called as a layer of its own, on images that can be looked at")
    return found


def _identity(
    subject: Subject, statement: str, gap: Callable[[Convolved], Tensor], premises: tuple[Premise, ...] = ()
) -> Finding:
    """What is 0 of every convolution, in parts of its largest output."""
    found = convolutions(subject)
    return Finding(
        statement=statement,
        value=torch.stack([gap(one).detach().cpu() for one in found]),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(one.name for one in found),
        premises=premises,
    )


def _share(gap: Tensor, of: Tensor) -> Tensor:
    largest = of.abs().amax()
    return gap.abs().amax() / (largest if float(largest) > 0 else 1.0)


def _periodic(subject: Subject) -> tuple[Premise, ...]:
    """Whether every convolution is of a periodic image, at every place of it."""
    layers = [(n, m) for n, m in subject.model.named_modules() if isinstance(m, nn.Conv2d)]
    zeros = [n for n, m in layers if not _wraps(m)]
    strided = [n for n, m in layers if m.stride != (1, 1)]
    texts = (
        "each convolution pads circularly, so that its output is as large as its input",
        "each steps by 1",
    )
    made = []
    for text, odd, why in ((texts[0], zeros, "pads otherwise"), (texts[1], strided, "steps further")):
        where = f"layer {odd[0]!r} {why}" if odd else f"so do the layers, {len(layers)} of them"
        made.append(Premise(text, "refuted" if odd else "proved", where))
    return tuple(made)


def _wraps(layer: nn.Conv2d) -> bool:
    spans = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    if layer.padding == "same" or all(span == 0 for span in spans):
        return layer.padding_mode == "circular" or not any(spans)
    if isinstance(layer.padding, str) or layer.padding_mode != "circular":
        return False
    return all(2 * p == span for p, span in zip(layer.padding, spans, strict=True))


def equivariance(subject: Subject) -> Finding:
    """How far each convolution is from commuting with a circular shift of its input.

    Zero padding breaks it at the border, a stride at every shift that it does not divide: premises.
    """

    @torch.no_grad()
    def gap(one: Convolved) -> Tensor:
        y = one.layer(one.x)
        moved = one.layer(one.x.roll((1, 2), (2, 3)))
        if moved.shape[2:] != one.x.shape[2:]:
            return moved.new_tensor(math.inf)  # a premise is refuted, and says why
        return _share(moved - y.roll((1, 2), (2, 3)), y)

    return _identity(
        subject,
        "Each convolution commutes with a circular shift of its input: the largest difference, in parts of "
        "its largest output.",
        gap,
        _periodic(subject),
    )


def characterization(subject: Subject) -> Finding:
    """How far each convolution is from the circular convolution with its own impulse responses."""

    @torch.no_grad()
    def gap(one: Convolved) -> Tensor:
        channels, height, width = one.x.shape[1:]
        delta = one.x.new_zeros(channels, channels, height, width)
        delta[torch.arange(channels), torch.arange(channels), 0, 0] = 1
        rest = one.layer(torch.zeros_like(delta[:1]))
        response = one.layer(delta) - rest
        y = one.layer(one.x)
        if response.shape[2:] != (height, width):
            return y.new_tensor(math.inf)
        spectrum = torch.einsum("ncij,coij->noij", torch.fft.fft2(one.x), torch.fft.fft2(response))
        return _share(torch.fft.ifft2(spectrum).real + rest - y, y)

    return _identity(
        subject,
        "Each convolution is the circular convolution with what it makes of a 1 at the origin of each "
        "channel: the largest difference, in parts of its largest output.",
        gap,
        _periodic(subject),
    )


def theorem(subject: Subject) -> Finding:
    """How far each convolution is from a product of Fourier transforms that are padded against wrapping."""

    @torch.no_grad()
    def gap(one: Convolved) -> Tensor:
        layer, y = one.layer, one.layer(one.x)
        padded = padded_input(layer, one.x)
        size = tuple(padded.shape[2:])
        kernel = layer.weight.new_zeros(*layer.weight.shape[:2], *size)
        (sh, sw), (dh, dw) = layer.stride, layer.dilation
        spans = [d * (k - 1) + 1 for d, k in zip((dh, dw), layer.kernel_size, strict=True)]
        kernel[:, :, : spans[0] : dh, : spans[1] : dw] = layer.weight
        x = torch.fft.rfft2(padded).unflatten(1, (layer.groups, -1))
        w = torch.fft.rfft2(kernel).conj().unflatten(0, (layer.groups, -1))
        product = torch.einsum("ngcij,gocij->ngoij", x, w).flatten(1, 2)
        valid = torch.fft.irfft2(product, size)[:, :, : size[0] - spans[0] + 1, : size[1] - spans[1] + 1]
        made = valid[:, :, ::sh, ::sw]
        return _share((made if layer.bias is None else made + layer.bias[:, None, None]) - y, y)

    return _identity(
        subject,
        "Each convolution is a product of Fourier transforms, that of its kernel conjugated: the largest "
        "difference, in parts of its largest output.",
        gap,
    )


def padded_input(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What a convolution reads: its input with its padding around it."""
    around = layer._reversed_padding_repeated_twice
    return F.pad(x, around) if layer.padding_mode == "zeros" else F.pad(x, around, mode=layer.padding_mode)


def backward(subject: Subject) -> Finding:
    """How far the gradients by autograd are from those written out as convolutions."""

    def gap(one: Convolved) -> Tensor:
        layer, x = one.layer, padded_input(one.layer, one.x).requires_grad_()
        layout = Arrangement(layer.stride, (0, 0), layer.dilation, layer.groups)  # type: ignore[arg-type]
        with torch.enable_grad():
            weight = layer.weight.detach().requires_grad_()
            y = F.conv2d(x, weight, None, layer.stride, 0, layer.dilation, layer.groups)
            delta = torch.randn(y.shape, generator=Generator().manual_seed(0), dtype=y.dtype).to(y.device)
            expected = torch.autograd.grad(y, (x, weight), delta)
        made = convolution_backward(x.detach(), weight.detach(), delta, layout)
        gaps = [_share(a - b, b) for a, b in zip((made.input, made.weight), expected, strict=True)]
        return torch.stack(gaps).amax()

    return _identity(
        subject,
        "The gradients by a convolution's input and weights are convolutions again: the largest difference "
        "from those of automatic differentiation, in parts of the largest.",
        gap,
    )


def channel_order(subject: Subject) -> Finding:
    """How far each output moves when its input channels and the weights that read them are reordered."""

    @torch.no_grad()
    def gap(one: Convolved) -> Tensor:
        layer, y = one.layer, one.layer(one.x)
        within = layer.weight.shape[1]
        order = torch.randperm(within, generator=Generator().manual_seed(0)).to(y.device)
        x = padded_input(layer, one.x).unflatten(1, (layer.groups, within))[:, :, order].flatten(1, 2)
        made = F.conv2d(x, layer.weight[:, order], layer.bias, layer.stride, 0, layer.dilation, layer.groups)
        return _share(made - y, y)

    return _identity(
        subject,
        "The order of a convolution's input channels tells nothing: the largest change where they and the "
        "weights that read them are put in another order, in parts of its largest output.",
        gap,
    )


def operator_norm(subject: Subject) -> Finding:
    """The most that an input is stretched by each convolution, found by power iteration, beside its bound."""
    found = convolutions(subject)
    known = [one for one in found if one.layer.padding_mode in ("zeros", "circular")]
    known = [one for one in known if bool(one.layer.weight.isfinite().all())]
    if not known:
        raise NotAsked("norms are bounded of convolutions of finite weights that pad by zeros or circularly")
    generator = Generator().manual_seed(0)
    bounds = [norm_bounds(one.layer, tuple(one.x.shape[1:]), generator=generator) for one in known]
    reshaped = [float(torch.linalg.matrix_norm(one.layer.weight.detach().flatten(1), 2)) for one in known]
    low, high = (
        torch.tensor([getattr(b, end) for b in bounds], dtype=torch.float64) for end in ("low", "high")
    )
    product = math.prod(high.tolist())
    return Finding(
        statement="No input is stretched by a convolution more than its operator norm: the largest stretch "
        f"that power iteration found in each. The bounds' product is {product:.3g}.",
        value=low,
        range=(0.0, math.inf),
        high=high,
        tolerance=1e-9 * float(high.max()),
        labels=tuple(f"{one.name} ({bound.by})" for one, bound in zip(known, bounds, strict=True)),
        curves={
            "convolution": torch.arange(1, len(known) + 1).double(),
            "power iteration": low,
            "bound": high,
            "norm of the reshaped kernel": torch.tensor(reshaped, dtype=torch.float64),
        },
    )


def field_bound(subject: Subject) -> Finding:
    """How far apart the pixels lie that the middle of each map depends on, and how far its layers allow.

    Measured by derivatives on held-out images; maps that may see the whole image are left out.
    """
    model = in_double(subject.model)
    x = drawn_rows(subject.test, EXAMPLES).batches[0].inputs[0][:EXAMPLES].double()
    with eval_mode(model):
        support = measured_support(model, x, generator=Generator().manual_seed(0))
        with torch.no_grad(), followed(model, x) as maps:
            model(x)
    bounded = [one for one in maps if max(f.size for f in one.fields) < WHOLE and one.layer in support]
    if not bounded:
        raise NotAsked("every feature map may see the whole image, or has no derivative by it")
    sizes = [extent(support[one.layer]) for one in bounded]
    return Finding(
        statement="The middle of a feature map depends on no pixels further apart than the receptive field "
        "that its layers' windows allow, along height and width.",
        value=torch.tensor([side for size in sizes for side in size]),
        unit="pixels",
        range=(0.0, math.inf),
        high=torch.tensor([math.ceil(field.size) for one in bounded for field in one.fields]),
        labels=tuple(f"{one.layer}, {axis}" for one in bounded for axis in ("height", "width")),
        failure=not_finite(support.values()),
    )


def periodic_demo() -> Subject:
    """Two convolutions of periodic images, the second dilated and in two groups."""
    layers = (
        nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3, padding=2, dilation=2, groups=2, padding_mode="circular"),
    )
    return _classifying(*layers)


def strided_demo() -> Subject:
    """Convolutions with zeros around, with a stride and a kernel that is not square."""
    layers = (nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, (2, 3), stride=2, groups=2))
    return _classifying(*layers)


def _classifying(*layers: nn.Module) -> Subject:
    """Layers, the means of two channels as scores, and six images of 10 x 11 pixels, drawn by seed 0."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                layer.reset_parameters()
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double().eval()
    x = torch.randn(6, 1, 10, 11, generator=Generator().manual_seed(0), dtype=torch.float64)
    batch = Batch((x,), torch.arange(6) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
