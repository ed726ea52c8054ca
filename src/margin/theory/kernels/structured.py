"""What a network's layers contribute to its tangent kernel, from their inputs and output gradients alone.

Of an affine layer z = W h the gradient by W is the outer product g h' of the gradient g by z with the input,
so that its part of the kernel is (h . h')(g . g'): the Gram matrix of the inputs times that of the
gradients, and the Jacobian by W is never written down. Where a layer is applied at several places, as a
convolution, the gradient is a sum of such products; it is formed layer by layer, without a copy of the
weights for each example. Novak, Sohl-Dickstein and Schoenholz (2022), Section 3.3.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call, jacrev, jvp, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from margin.engine.evaluation import Call, capture

Inputs = tuple[Tensor, ...]


class Factors(NamedTuple):
    """The Jacobian of an affine layer's parameters as outer products of ``given`` and ``back``."""

    given: Float[Tensor, "n taken"]
    back: Float[Tensor, "n outputs units"]

    def rows(self, part: slice) -> "Factors":
        """Those of some examples."""
        return Factors(self.given[part], self.back[part])

    def empty(self, count: int) -> "Factors":
        """Room for those of so many examples."""
        return Factors(*(x.new_empty(count, *x.shape[1:]) for x in self))


class Jacobian(NamedTuple):
    """The Jacobian by a layer's parameters, flattened."""

    by: Float[Tensor, "n outputs parameters"]

    def rows(self, part: slice) -> "Jacobian":
        """That of some examples."""
        return Jacobian(self.by[part])

    def empty(self, count: int) -> "Jacobian":
        """Room for that of so many examples."""
        return Jacobian(self.by.new_empty(count, *self.by.shape[1:]))


Features = tuple[Factors | Jacobian, ...]
"""Of each group of parameters what its part of the kernel is made of."""

AFFINE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d)
SCALING: tuple[type[nn.Module], ...] = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)


def outputs_of(model: nn.Module, inputs: Inputs) -> Float[Tensor, "n outputs"]:
    """The outputs of a model, those of an example in a row; one number an example is one column.

    Raises:
        ValueError: It returns no tensor of real numbers with a row an example.
    """
    out = model(*inputs)
    if not isinstance(out, Tensor) or not out.is_floating_point() or out.shape[:1] != inputs[0].shape[:1]:
        kind = f"a tensor of {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(
            f"a tangent kernel needs a tensor of real outputs, a row for each of {len(inputs[0])} examples: "
            f"got {kind}"
        )
    return out.reshape(len(out), -1)


class Layers:
    """A model's layers whose part of the kernel has structure, and the parameters that remain.

    Which these are is found out on a few examples: the gradient in a random direction of the outputs, as the
    layers' inputs and output gradients give it, must be that of automatic differentiation. So parameters
    that two layers share, or that a model uses outside of their layer, are among those that remain.

    Args:
        model: In evaluation mode.
        few: A few examples.
    """

    def __init__(self, model: nn.Module, few: Inputs) -> None:
        self.model = model
        self.rest = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.layers: list[nn.Module] = []
        candidates = [m for m in model.modules() if isinstance(m, AFFINE + SCALING) and _trained(m)]
        outputs, calls = self._run(candidates, few)
        generator = Generator().manual_seed(2022)
        v = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
        names = {id(p): name for name, p in self.rest.items()}
        known = [m for m in candidates if len(calls.get(m, [])) == 1 and _alone(calls[m][0], len(outputs))]
        if not known or not outputs.requires_grad:
            return
        asked = [t for m in known for t in (*_trained(m).values(), calls[m][0].output)]
        gradients = iter(
            torch.autograd.grad((outputs * v).sum(), asked, allow_unused=True, materialize_grads=True)
        )
        for module in known:
            own = _trained(module)
            true = _in_order(module, own, [next(gradients) for _ in own])
            made = _written(_feature(calls[module][0], next(gradients)[:, None])).sum(0)[0]
            if _agree(made, torch.cat([part.reshape(-1) for part in true])):
                self.layers.append(module)
                for parameter in own.values():
                    self.rest.pop(names[id(parameter)], None)

    def _run(
        self, modules: Sequence[nn.Module], inputs: Inputs
    ) -> tuple[Tensor, Mapping[nn.Module, list[Call]]]:
        # what follows a layer may write into its output: it is given a copy
        with capture(modules, lambda call: call.output.clone()) as calls:
            outputs = outputs_of(self.model, inputs)
        found: dict[nn.Module, list[Call]] = {}
        for call in calls:
            found.setdefault(call.module, []).append(call)
        return outputs, found

    def features(self, inputs: Inputs) -> Features:
        """What the kernel of some examples is made of: one backward pass for each output."""
        outputs, calls = self._run(self.layers, inputs)
        places = [calls[module][0].output for module in self.layers]
        found: list[Factors | Jacobian] = []
        if places:
            columns = [
                torch.autograd.grad(
                    column.sum(), places, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                for column in outputs.unbind(1)
            ]
            for i, module in enumerate(self.layers):
                g = torch.stack([column[i] for column in columns], 1)
                found.append(_feature(calls[module][0], g))
                del g
        if self.rest:
            found.append(Jacobian(jacobian(self.model, self.rest, inputs)))
        return tuple(found)


def _trained(module: nn.Module) -> dict[str, Tensor]:
    own = dict(module.named_parameters(recurse=False))
    return {name: p for name, p in own.items() if name in ("weight", "bias") and p.requires_grad}


def _in_order(module: nn.Module, own: Mapping[str, Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    """Gradients as :func:`_written` orders them: of an affine layer a bias follows each unit's weights."""
    found = dict(zip(own, values, strict=True))
    if not isinstance(module, AFFINE):
        return list(found.values())
    parts = [found[name].reshape(len(found[name]), -1) for name in ("weight", "bias") if name in found]
    return [torch.cat(parts, 1)]


def _alone(call: Call, n: int) -> bool:
    """Whether a layer was called with a row an example, in a way that is known."""
    module, x = call.module, call.args[0] if call.args else None
    if not isinstance(x, Tensor) or not isinstance(call.output, Tensor) or x.shape[:1] != (n,):
        return False
    if (
        not call.output.requires_grad
        or call.output.shape[:1] != (n,)
        or set(dict(module.named_parameters())) - {"weight", "bias"}
    ):
        return False
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        plain = module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return plain and x.ndim == (4 if isinstance(module, nn.Conv2d) else 3)
    if isinstance(module, _BatchNorm):
        return module.running_mean is not None
    return x.ndim > 1


def _agree(made: Tensor, true: Tensor) -> bool:
    tolerance = 10 * torch.finfo(true.dtype).eps ** 0.5
    return made.shape == true.shape and bool((made - true).norm() <= tolerance * true.norm())


def _feature(call: Call, g: Float[Tensor, "n outputs *place"]) -> Factors | Jacobian:
    """What a layer's part of the kernel is made of, from its input and the gradients by its output."""
    module, x = call.module, call.args[0].detach()
    own = _trained(module)
    if isinstance(module, SCALING):
        return _scaled(module, x, g, own)
    if isinstance(module, nn.Conv1d):
        x, g = x[:, :, None], g[:, :, :, None]
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        u, back = patches(module, x), g.flatten(3)
    elif x.ndim == 2:
        one = [x.new_ones(len(x), 1)] if "bias" in own else []
        return Factors(torch.cat([*([x] if "weight" in own else []), *one], 1), g)
    else:
        u, back = x.flatten(1, -2).mT, g.flatten(2, -2).mT
    parts = [back @ u[:, None].mT] if "weight" in own else []
    parts += [back.sum(3, keepdim=True)] if "bias" in own else []
    return Jacobian(torch.cat(parts, 3).flatten(2))


def patches(module: nn.Conv1d | nn.Conv2d, x: Float[Tensor, "n channels h w"]) -> Float[Tensor, "n d places"]:
    """What each output of a convolution sees of its input, a column a place."""
    flat = isinstance(module, nn.Conv1d)

    def both(value: object, other: int) -> tuple[int, ...]:
        one = tuple(value) if isinstance(value, tuple) else (value,)  # as torch keeps it
        return (other, *one) if flat else one

    return F.unfold(
        x,
        both(module.kernel_size, 1),
        both(module.dilation, 1),
        both(module.padding, 0),
        both(module.stride, 1),
    )


def _scaled(module: nn.Module, x: Tensor, g: Tensor, own: Mapping[str, Tensor]) -> Jacobian:
    """The Jacobian of a normalization's scale and shift."""
    if isinstance(module, nn.LayerNorm):
        plain = F.layer_norm(x, module.normalized_shape, None, None, module.eps)
        kept = tuple(range(g.ndim - len(module.normalized_shape), g.ndim))
    elif isinstance(module, nn.GroupNorm):
        plain, kept = F.group_norm(x, module.num_groups, None, None, module.eps), (2,)
    elif isinstance(module, _BatchNorm):
        plain, kept = F.batch_norm(x, module.running_mean, module.running_var, eps=module.eps), (2,)
    else:
        raise TypeError(f"a normalization's scale is known: got {type(module).__name__}")
    over = [axis for axis in range(2, g.ndim) if axis not in kept]
    parts = {"weight": g * plain[:, None], "bias": g}
    summed = [parts[name].sum(over) if over else parts[name] for name in own]
    return Jacobian(torch.cat([part.flatten(2) for part in summed], 2))


def _written(feature: Factors | Jacobian) -> Float[Tensor, "n outputs parameters"]:
    """The Jacobian, written down."""
    if isinstance(feature, Jacobian):
        return feature.by
    return (feature.back[..., None] * feature.given[:, None, None]).flatten(2)


Weights = dict[str, Tensor]


def pushed(f: Callable[[Weights], Tensor], at: Weights, direction: Weights) -> tuple[Tensor, Tensor]:
    """A function's value and its derivative in a direction, forward.

    On its first call torch scripts some derivatives of its own, and warns of that.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)
        moved: tuple[Tensor, Tensor] = jvp(f, (at,), (direction,))  # type: ignore[assignment]
    return moved


def jacobian(
    model: nn.Module, parameters: Mapping[str, Tensor], inputs: Inputs
) -> Float[Tensor, "n outputs parameters"]:
    """The Jacobian of each example's outputs by these parameters, side by side."""
    wanted = {name: p.detach() for name, p in parameters.items()}

    def alone(weights: Weights, *one: Tensor) -> Tensor:
        out: Tensor = functional_call(model, weights, tuple(x[None] for x in one))
        return out.reshape(-1)

    try:
        found = vmap(jacrev(alone), in_dims=(None, *(0 for _ in inputs)), randomness="same")(wanted, *inputs)
    except (RuntimeError, NotImplementedError):
        return _one_by_one(model, parameters, inputs)  # the same numbers, slower: a recurrence, a branch
    return torch.cat([found[name].flatten(2) for name in wanted], 2).detach()


def _one_by_one(model: nn.Module, parameters: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
    wanted, rows = list(parameters.values()), []
    for i in range(len(inputs[0])):
        out = outputs_of(model, tuple(x[i : i + 1] for x in inputs))[0]
        for value in out.unbind():
            found = [torch.zeros_like(p) for p in wanted]
            if value.requires_grad:
                found = list(
                    torch.autograd.grad(
                        value, wanted, retain_graph=True, allow_unused=True, materialize_grads=True
                    )
                )
            rows.append(torch.cat([part.reshape(-1) for part in found]))
    return torch.stack(rows).reshape(len(inputs[0]), -1, sum(p.numel() for p in wanted))


Contract = Callable[[Features, Features, Tensor], None]


def add_all(left: Features, right: Features, out: Float[Tensor, "n outputs m outputs"]) -> None:
    """Add to a block of the kernel of all pairs of outputs."""
    n, c, m, _ = out.shape
    for one, other in zip(left, right, strict=True):
        if isinstance(one, Factors) and isinstance(other, Factors):
            G = (one.back.flatten(0, 1) @ other.back.flatten(0, 1).mT).view(n, c, m, c)
            out += G.mul_((one.given @ other.given.mT)[:, None, :, None])
        elif isinstance(one, Jacobian) and isinstance(other, Jacobian):
            _product(out.view(n * c, m * c), one.by.flatten(0, 1), other.by.flatten(0, 1), 1.0)


def add_mean(left: Features, right: Features, out: Float[Tensor, "n m"]) -> None:
    """Add to a block of the kernel's mean over equal outputs, its trace over outputs by their number."""
    for one, other in zip(left, right, strict=True):
        if isinstance(one, Factors) and isinstance(other, Factors):
            G = one.back.flatten(1) @ other.back.flatten(1).mT
            out += G.mul_(one.given @ other.given.mT).div_(one.back.shape[1])
        elif isinstance(one, Jacobian) and isinstance(other, Jacobian):
            _product(out, one.by.flatten(1), other.by.flatten(1), 1 / one.by.shape[1])


def _product(out: Tensor, left: Tensor, right: Tensor, scale: float) -> None:
    out.addmm_(left, right.mT, alpha=scale)


CONTRACT: dict[str, Contract] = {"all": add_all, "mean": add_mean}
