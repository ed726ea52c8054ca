"""What principal components promise: no map of their rank errs less, no such Gaussian is more likely."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.classic.factors.pca import PCA, LinearAutoencoder, principal_axes, principal_components
from margin.classic.factors.ppca import PPCA, mean_log_likelihood, most_likely
from margin.classic.factors.ppca_learning import maximum_likelihood
from margin.classic.linear.least_squares_claims import solved
from margin.classic.linear.rows import Rows, centered, covariance, scaled, training_rows
from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CODES
from margin.data.sets.tiny.tables import values
from margin.engine.objectives import negative_log_density, reconstruction_error
from margin.nn.preprocessed import core_of, dtype_of


def has_linear_codes(subject: Subject) -> bool:
    """Whether the model is the catalog's PCA or linear autoencoder."""
    return isinstance(core_of(subject.model), PCA | LinearAutoencoder)


def shaped(subject: Subject, rows: Float[Tensor, "count features"]) -> Tensor:
    """Rows of features in the shape of an input: images where the inputs are images."""
    return rows.reshape(len(rows), *subject.train[0].inputs[0].shape[1:])


def singular_values(rows: Rows) -> Tensor:
    """The singular values of the centered rows over sqrt(n), weighted."""
    X = scaled(centered(rows.x, rows.weight)[0], rows.weight / rows.weight.sum())
    return torch.linalg.svdvals(torch.linalg.qr(X, mode="r").R)


def eckart_young(subject: Subject) -> Finding:
    """Whether no map of the codes' rank could reconstruct the training examples better; PCA attains it.

    The root mean squared error and the largest root mean square along any one direction, at least
    sqrt(sum_{i > m} s_i^2) and s_{m+1}, of the singular values s_i of the centered rows over sqrt(n).

    Args:
        subject: A PCA or linear autoencoder with its training examples.
    """
    rows, core = training_rows(subject, targets=False), core_of(subject.model)
    eps = torch.finfo(dtype_of(subject.model)).eps
    with torch.no_grad():
        x = rows.x.to(next(core.parameters()))
        codes = core.encode(x)
        residual = scaled(rows.x - core.decode(codes).double().cpu(), rows.weight / rows.weight.sum())
    S, m = singular_values(rows), codes.shape[1]
    tail = S[m:] if len(S) > m else S.new_zeros(1)
    spread = torch.linalg.svdvals(torch.linalg.qr(residual, mode="r").R)
    least = torch.stack((tail.square().sum().sqrt(), tail.max()))
    size = float(scaled(rows.x, rows.weight / rows.weight.sum()).norm())
    return Finding(
        statement=f"No affine map of rank {m} reconstructs the training examples with less error, in the "
        "mean or in the worst direction; PCA attains both.",
        value=torch.stack((spread.square().sum().sqrt(), spread.max())),
        unit="model units",
        range=(0.0, math.inf),
        low=least,
        high=least if isinstance(core, PCA) else None,
        tolerance=4 * size * (math.sqrt(m) * eps + 16 * torch.finfo(S.dtype).eps * math.sqrt(len(S))),
        labels=("root mean squared error", "worst direction"),
        reference="Eckart and Young 1936; Mirsky 1960, Theorem 2 (every unitarily invariant norm)",
        curves={"spectrum": S.square()} | _components(subject),
    )


def _components(subject: Subject) -> dict[str, Tensor]:
    core = core_of(subject.model)
    columns = {PCA: "axes", PPCA: "loadings"}.get(type(core))
    if columns is None:
        return {"components": shaped(subject, core.decoder.weight.detach().T)}
    directions = getattr(core, columns).detach()
    return {"components": shaped(subject, directions if columns == "axes" else directions.T)}


def subspace(subject: Subject) -> Finding:
    """The largest angle between the decoder's subspace and PCA's, to which training tends.

    Every minimum of the loss has this subspace, and every other critical point is a saddle; it is unique
    where the m-th eigenvalue exceeds the next. What decoder and encoder are within it is not determined.

    Args:
        subject: A linear autoencoder with its training examples.
    """
    rows, core = training_rows(subject, targets=False), core_of(subject.model)
    D = core.decoder.weight.detach().double().cpu()
    m = D.shape[1]
    _, axes, spectrum = principal_axes(rows.x, m, rows.weight)
    spectrum = torch.cat((spectrum, spectrum.new_zeros(1)))
    gap = float(spectrum[m - 1] - spectrum[m]) > 1e-9 * float(spectrum[0])
    evidence = f"eigenvalue {m} is {float(spectrum[m - 1]):.4g}, the next {float(spectrum[m]):.4g}"
    Q = torch.linalg.qr(D).Q
    # the sine is exact where the angle is small, the cosine is not
    sine = torch.linalg.matrix_norm(Q - axes.T @ (axes @ Q), 2).clamp(max=1)
    return Finding(
        statement=f"The largest principal angle between the decoder's subspace and that of the top {m} "
        "principal components tends to 0 in training.",
        value=sine.asin(),
        unit="radian",
        range=(0.0, math.pi / 2),
        equals=0.0,
        scope="limit",
        tolerance=1e-3,
        premises=(Premise("the principal subspace is unique", "proved" if gap else "refuted", evidence),),
        reference="Baldi and Hornik 1989, Section 2, Facts 1 to 4",
        curves={"spectrum": spectrum[:-1]} | _components(subject),
    )


def likelihood(subject: Subject) -> Finding:
    """Whether no probabilistic PCA of as many components is more likely; the closed form attains it.

    Args:
        subject: A probabilistic PCA with its training examples.
    """
    rows, core = training_rows(subject, targets=False), core_of(subject.model)
    eps = torch.finfo(dtype_of(subject.model)).eps
    W, noise, center = (p.detach().double().cpu() for p in (core.loadings, core.noise_variance, core.mean))
    mean, S = covariance(rows.x, rows.weight)
    off = mean - center
    value = mean_log_likelihood(S + torch.outer(off, off), W, noise)
    S_values = singular_values(rows).square()
    spectrum = torch.cat((S_values, S_values.new_zeros(max(0, len(S) - len(S_values)))))
    most = most_likely(spectrum, W.shape[1])
    dense = bool(value.isfinite())
    short = f"; the model falls short of it by {max(0.0, float(most - value)):.2g}" if dense else ""
    directions = f"{W.shape[1]} direction{'s' * (W.shape[1] != 1)}"
    return Finding(
        statement=f"No Gaussian of {directions} and even noise gives the training examples a larger mean "
        f"log-likelihood than {float(most):.6g} nats{short}.",
        value=value,
        unit="nats",
        range=(-math.inf, math.inf),
        high=most,
        failure="" if dense else f"the likelihood is not finite; the noise variance is {float(noise):g}",
        tolerance=1e-9 * (1 + abs(float(most))) + eps * len(S),
        curves={"spectrum": spectrum} | _components(subject),
    )


def pca_demo() -> Subject:
    """PCA of a few Gaussian points of space."""
    data = values()
    return solved(data, PCA(data.spec["in_features"]), CODES, reconstruction_error, principal_components())


def autoencoder_demo() -> Subject:
    """A linear autoencoder at a minimum of its loss: PCA's subspace, its codes turned and stretched."""
    data = values()
    core = LinearAutoencoder(data.spec["in_features"])
    subject = solved(data, core, CODES, reconstruction_error)
    rows = training_rows(subject, targets=False)
    mean, axes, _ = principal_axes(rows.x, 2, rows.weight)
    turn = torch.randn(2, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        core.encoder.weight.copy_(turn @ axes)
        core.decoder.weight.copy_(axes.T @ torch.linalg.inv(turn))
        core.decoder.bias.copy_(mean - axes.T @ (axes @ mean))
    return subject


def ppca_demo() -> Subject:
    """Probabilistic PCA of a few Gaussian points of space, in closed form."""
    data = values()
    core = PPCA(data.spec["in_features"], components=1)
    return solved(data, core, CODES, negative_log_density, maximum_likelihood())
