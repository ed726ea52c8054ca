"""The family of latent-variable models X = f(Z B) by nine names: what is latent, how it makes data.

=============== ===================================== ==========================================
name            Z, a row for each example             f(Z B)
=============== ===================================== ==========================================
pca             real, orthogonal                      Z B + mean
factor_analysis real, normal                          Z B + mean, noise of each feature
nmf             at least 0, as B is                   Z B
lle, isomap     real, of a neighborhood graph         mean of the examples with the nearest Z
gplvm           real                                  mean of a Gaussian process
rbm             binary, in the mean                   logistic of Z B + bias
dp              one 1 a row (Dirichlet process)       Z B, the means of clusters
bp              binary (beta process)                 Z B
=============== ===================================== ==========================================

A taxonomy of generative models (Goodfellow 2016): which state their density exactly, by a bound or a sum, or
not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.catalog import Entry, call_with, models, resolve
from margin.generative.latent.exchangeable import bp_means
from margin.generative.latent.gplvm import GPLVM, principal_latents

NAMES = ("pca", "factor_analysis", "nmf", "lle", "isomap", "gplvm", "rbm", "dp", "bp")
NEIGHBORS = 12


class Fitted(NamedTuple):
    """Codes of the examples, and the examples as the codes make them.

    Args:
        codes: Z.
        rows: f(Z B).
    """

    codes: Float[Tensor, "rows codes"]
    rows: Float[Tensor, "rows dim"]


def fit(name: str, X: Float[Tensor, "rows dim"], *, latent: int = 2, seed: int = 0) -> Fitted:
    """A member of the family fitted to rows in [0, 1], in float64; all but gplvm and bp are scikit-learn's.

    Args:
        name: Which.
        X: Rows; nmf needs them at least 0, rbm in [0, 1].
        latent: Numbers of a code; of dp and bp it is no bound: the data choose.
        seed: Of what is drawn.

    Raises:
        ValueError: There is no such member, or it cannot be fitted to these rows.

    Reference: Murphy 2023, Chapter 28.
    """
    if name not in NAMES:
        raise ValueError(f"the family has {', '.join(NAMES)}: got {name!r}")
    return _FITS[name](X.double(), latent, seed)


def _peer(path: str, X: Tensor, **options: Any) -> tuple[Any, Tensor]:
    model = resolve(path)(**options)
    return model, torch.from_numpy(model.fit_transform(X.numpy())).double()


def _pca(X: Tensor, latent: int, seed: int) -> Fitted:
    model, Z = _peer("sklearn.decomposition:PCA", X, n_components=latent, random_state=seed)
    return Fitted(Z, torch.from_numpy(model.inverse_transform(Z.numpy())))


def _factor_analysis(X: Tensor, latent: int, seed: int) -> Fitted:
    model, Z = _peer("sklearn.decomposition:FactorAnalysis", X, n_components=latent, random_state=seed)
    return Fitted(Z, Z @ torch.from_numpy(model.components_) + torch.from_numpy(model.mean_))


def _nmf(X: Tensor, latent: int, seed: int) -> Fitted:
    path = "sklearn.decomposition:NMF"
    model, Z = _peer(path, X, n_components=latent, random_state=seed, max_iter=2000)
    return Fitted(Z, Z @ torch.from_numpy(model.components_))


def _by_neighbors(path: str) -> Callable[[Tensor, int, int], Fitted]:
    def fitted(X: Tensor, latent: int, seed: int) -> Fitted:
        _, Z = _peer(path, X, n_components=latent, n_neighbors=NEIGHBORS)
        nearest = torch.cdist(Z, Z).argsort(1)[:, :NEIGHBORS]
        return Fitted(Z, X[nearest].mean(1))

    return fitted


def _gplvm(X: Tensor, latent: int, seed: int) -> Fitted:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = GPLVM(*X.shape, code=latent).double()
    with torch.no_grad():
        model.rows.copy_(X)
        model.mean.copy_(X.mean(0))
        model.latents.copy_(principal_latents(X, latent))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(60):
        loss = model.negative_log_likelihood()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    codes = model.latents.detach()
    with torch.no_grad():
        return Fitted(codes, model.decode(codes))


def _rbm(X: Tensor, latent: int, seed: int) -> Fitted:
    path = "sklearn.neural_network:BernoulliRBM"
    options = {"n_components": latent, "random_state": seed, "learning_rate": 0.1, "n_iter": 500}
    model, Z = _peer(path, X, **options)
    B, bias = torch.from_numpy(model.components_), torch.from_numpy(model.intercept_visible_)
    return Fitted(Z, (Z @ B + bias).sigmoid())


def _dp(X: Tensor, latent: int, seed: int) -> Fitted:
    path = "sklearn.mixture:BayesianGaussianMixture"
    most = min(4 * latent, len(X))
    model = resolve(path)(n_components=most, covariance_type="diag", random_state=seed, max_iter=500)
    cluster = torch.from_numpy(model.fit_predict(X.numpy()))
    Z = torch.nn.functional.one_hot(cluster, most).double()
    return Fitted(Z, Z @ torch.from_numpy(model.means_))


def _bp(X: Tensor, latent: int, seed: int) -> Fitted:
    # a row gets a part of its own where half the variance of a row is left
    Z, A = bp_means(X, penalty=float(((X - X.mean(0)).square().sum() / len(X) / 2).sqrt()))
    return Fitted(Z, Z @ A)


_FITS: dict[str, Callable[[Tensor, int, int], Fitted]] = {
    "pca": _pca,
    "factor_analysis": _factor_analysis,
    "nmf": _nmf,
    "lle": _by_neighbors("sklearn.manifold:LocallyLinearEmbedding"),
    "isomap": _by_neighbors("sklearn.manifold:Isomap"),
    "gplvm": _gplvm,
    "rbm": _rbm,
    "dp": _dp,
    "bp": _bp,
}

Density = Literal["explicit, tractable", "explicit, approximate", "implicit", "none"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model stands, as its methods tell.

    Args:
        name: Of its entry.
        density: Explicit and tractable: ``log_prob`` is exact at any size. Explicit and approximate: there is
            a ``bound``, or a partition function that only small models can sum (``log_partition``). Implicit:
            it draws samples, and states no density. None: it codes, and has no law.
        can_sample: Whether it draws samples.
        can_logprob: Whether it has ``log_prob``.
        has_encoder: Whether it has ``encode``.
    """

    name: str
    density: Density
    can_sample: bool
    can_logprob: bool
    has_encoder: bool


def density_of(core: nn.Module) -> Density:
    """How a model states its density; see :class:`Place`."""
    if has(core, "bound") or has(core, "log_partition"):
        return "explicit, approximate"
    if has(core, "log_prob"):
        return "explicit, tractable"
    return "implicit" if has(core, "sample") else "none"


def has(core: nn.Module, method: str) -> bool:
    """Whether a model has a method."""
    return callable(getattr(core, method, None))


def place_of(entry: Entry) -> Place:
    """Where an entry stands, its model built as its smallest data dictate."""
    with torch.random.fork_rng([]):
        core: nn.Module = call_with(resolve(entry.build), resolve(entry.tiny)().spec, {}, entry.name)
    verbs = (has(core, method) for method in ("sample", "log_prob", "encode"))
    return Place(entry.name, density_of(core), *verbs)


def taxonomy(area: str = "generative") -> tuple[Place, ...]:
    """Where every entry of an area stands, in the order of its table.

    Reference: Goodfellow 2016, Section 2.3 and Figure 9.
    """
    return tuple(place_of(entry) for name, entry in models().items() if name.startswith(f"{area}/"))


def exact_log_prob(core: Any, x: Float[Tensor, " batch *shape"]) -> Float[Tensor, " batch"]:
    """The exact log-density of each row, in nats, of a model that states it.

    Raises:
        ValueError: The model is implicit, has no law, or only a bound of its density.
    """
    if not has(core, "log_prob"):
        raise ValueError(
            f"log_prob is of models with an explicit density: {type(core).__name__} is {density_of(core)}"
        )
    log_density: Tensor = core.log_prob(x)
    return log_density
