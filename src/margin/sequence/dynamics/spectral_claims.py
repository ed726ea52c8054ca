"""The spectrum of a recurrent matrix (Horn and Johnson 2013): where it lies, its norm, how its powers grow.

:func:`transitions` finds the matrices by which a model's states go from step to step.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.nn.preprocessed import core_of
from margin.sequence.linear.linear_system import LinearSystem, classifier, stability
from margin.sequence.linear.lru import LRU
from margin.sequence.recurrent.captured import example


class Transition(NamedTuple):
    """The matrix that multiplies a state on its way to the next.

    Args:
        name: Where it is in the model.
        matrix: A, in float64; None where it is diagonal.
        eigenvalues: Its eigenvalues, in complex128.
    """

    name: str
    matrix: Float[Tensor, "states states"] | None
    eigenvalues: Complex[Tensor, " states"]


@torch.no_grad()
def transitions(model: nn.Module) -> list[Transition]:
    """Every recurrent matrix of LRUs, linear systems and simple recurrent networks, in the model's order.

    Gated cells have none: what multiplies their state depends on the input.

    Args:
        model: Any module.
    """
    found = []
    for name, module in model.named_modules():
        path = name.removeprefix("model.")
        if isinstance(module, LRU):
            found.append(Transition(path, None, module.eigenvalues.to(torch.complex128)))
        elif isinstance(module, LinearSystem):
            found.append(_dense(path, module.A))
        elif isinstance(module, nn.RNN):
            weights = dict(module.named_parameters())
            names = [key for key in weights if key.startswith("weight_hh_l")]
            found += [_dense(f"{path}.{key}".removeprefix("."), weights[key]) for key in names]
    return found


def _dense(name: str, A: Tensor) -> Transition:
    A = A.detach().double()
    finite = bool(A.isfinite().all())  # eigvals would raise
    values = torch.linalg.eigvals(A) if finite else torch.full((len(A),), torch.nan).to(torch.complex128)
    return Transition(name, A, values)


ROUNDING = 1e-9
"""Relative, of a spectral radius and of a norm in float64."""

POWERS = 200
"""Powers of a matrix that are looked at."""

FLOOR = 1e-250
"""Norm of a power below which rounding to 0 is near; the matrix is scaled to spectral radius 1 before."""


def has_transition(subject: Subject) -> bool:
    """Whether the model has a recurrent matrix that does not depend on the input."""
    return bool(transitions(subject.model))


def has_dense_transition(subject: Subject) -> bool:
    """Whether the model has a recurrent matrix with entries off its diagonal."""
    return any(found.matrix is not None for found in transitions(subject.model))


def has_linear_system(subject: Subject) -> bool:
    """Whether the model has a linear system of dense transition."""
    return any(isinstance(module, LinearSystem) for module in core_of(subject.model).modules())


def eigenvalues(subject: Subject) -> Finding:
    """The largest modulus of the eigenvalues of each recurrent matrix; beside it, those of the beginning.

    Nothing is promised: of a nonlinear network a radius above 1 is no explosion. A state of modulus r forgets
    to 1/e in -1 / log r steps.

    Args:
        subject: A model with recurrent matrices.
    """
    now = transitions(subject.model)
    curves = drawn(now, "now")
    if subject.initial is not None:
        curves = drawn(transitions(subject.initial), "at the beginning") | curves
    return Finding(
        statement="The spectral radius of each recurrent matrix.",
        value=torch.stack([found.eigenvalues.abs().max() for found in now]),
        range=(0.0, math.inf),
        labels=tuple(found.name for found in now),
        failure=_not_finite(now),
        curves=curves,
    )


def drawn(found: list[Transition], when: str) -> dict[str, Tensor]:
    """The eigenvalues of all matrices as two curves, for the picture of the unit disc."""
    values = torch.cat([transition.eigenvalues for transition in found])
    return {f"real part {when}": values.real, f"imaginary part {when}": values.imag}


def _not_finite(found: list[Transition]) -> str:
    bad = [transition.name for transition in found if not bool(transition.eigenvalues.isfinite().all())]
    return f"the recurrent matrix of {', '.join(bad)} is not finite" if bad else ""


def radius(subject: Subject) -> Finding:
    """Whether no eigenvalue of a recurrent matrix exceeds its spectral norm in modulus.

    Args:
        subject: A model with recurrent matrices that are not diagonal.
    """
    now = [found for found in transitions(subject.model) if found.matrix is not None]
    failure = _not_finite(now)
    norms = [
        torch.linalg.matrix_norm(found.matrix, 2) if not failure and found.matrix is not None else math.nan
        for found in now
    ]
    # with its rounding, of which each matrix has its own
    high = torch.tensor([float(norm) * (1 + ROUNDING) for norm in norms], dtype=torch.float64)
    return Finding(
        statement="The spectral radius of each recurrent matrix is at most its spectral norm, to a relative "
        f"{ROUNDING:g}.",
        value=torch.stack([found.eigenvalues.abs().max() for found in now]),
        range=(0.0, math.inf),
        low=torch.zeros_like(high),
        high=high,
        labels=tuple(found.name for found in now),
        failure=failure,
    )


def powers(subject: Subject) -> Finding:
    r"""Whether the powers of each transition stay below the bound by its eigenvalues and their basis.

    .. math:: \|A^k\|_2 \le \kappa(P) \, \rho(A)^k, \qquad A = P \Lambda P^{-1}

    The value is the largest of ||A^k|| / (kappa rho^k) over k; for a normal matrix it is 1 at each k.

    Args:
        subject: A model with linear systems.
    """
    dense = [m.A.detach().double() for m in subject.model.modules() if isinstance(m, LinearSystem)]
    names = [
        n.removeprefix("model.") for n, m in subject.model.named_modules() if isinstance(m, LinearSystem)
    ]
    bad = [name for name, A in zip(names, dense, strict=True) if not bool(A.isfinite().all())]
    if bad:
        looked = [(torch.full((1,), torch.nan).double(), math.nan)] * len(dense)
    else:
        looked = [bounded_powers(A) for A in dense]
    defective = [
        f"{name} (condition {condition:.1e})"
        for name, (_, condition) in zip(names, looked, strict=True)
        if not bad and not condition * torch.finfo(torch.float64).eps < 1
    ]
    conditions = ", ".join(f"{condition:.3g}" for _, condition in looked)
    rules = ", ".join("not finite" if bad else stability(A) for A in dense)
    return Finding(
        statement=f"||A^k|| is at most kappa rho^k for k = 1 .. {POWERS}: the largest ratio of each "
        f"transition. Stability: {rules}.",
        value=torch.stack([ratios.max() for ratios, _ in looked]),
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=1e-9,
        labels=tuple(names),
        premises=(
            Premise(
                "each transition has a basis of eigenvectors",
                "refuted" if defective else "proved",
                f"no basis to rounding: {', '.join(defective)}"
                if defective
                else f"their conditions are {conditions}",
            ),
        ),
        failure=f"the transition of {', '.join(bad)} is not finite" if bad else "",
        curves={name: ratios for name, (ratios, _) in zip(names, looked, strict=True)},
    )


def bounded_powers(A: Tensor) -> tuple[Tensor, float]:
    """The ratios ||A^k|| / (kappa rho^k), k = 1 .. POWERS, and the condition kappa of the eigenvectors."""
    values, P = torch.linalg.eig(A)
    singular = torch.linalg.svdvals(P)
    condition = float(singular[0] / singular[-1])
    size = float(values.abs().max())
    if size == 0:  # nilpotent: only A = 0 has a basis of eigenvectors
        ratio = torch.zeros(1).double() if bool((A == 0).all()) else torch.full((1,), torch.inf).double()
        return ratio, condition
    scaled, power, ratios = A / size, torch.eye(len(A), dtype=A.dtype, device=A.device), []
    for _ in range(POWERS):
        power = power @ scaled
        norm = float(torch.linalg.matrix_norm(power, 2))
        ratios.append(norm / condition)
        if norm < FLOOR:
            break
    return torch.tensor(ratios, dtype=torch.float64), condition


def demo() -> Subject:
    """Two dense linear systems of 8 states."""
    subject = example(lambda: classifier(2, 3, width=4, states=8), (6, 5, 2), classes=3)
    return replace(subject, initial=subject.model)
