"""What the spectrum of a recurrent matrix tells: where it lies, its norm, how its powers grow."""

import math

import torch
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.nn.preprocessed import core_of
from margin.sequence.dynamics.transitions import Transition, transitions
from margin.sequence.linear.linear_system import LinearSystem, classifier, stability

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
        unit="1",
        range=(0.0, math.inf),
        labels=tuple(found.name for found in now),
        premises=(),
        reference="Pascanu, Mikolov and Bengio 2013, Section 2.1",
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
        unit="1",
        range=(0.0, math.inf),
        low=torch.zeros_like(high),
        high=high,
        labels=tuple(found.name for found in now),
        premises=(),
        reference="Horn and Johnson 2013, Theorem 5.6.9",
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
        unit="1",
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
        reference="Horn and Johnson 2013, Section 5.6",
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
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 3, width=4, states=8)
        batch = Batch((torch.randn(6, 5, 2),), torch.arange(6) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), initial=model)
