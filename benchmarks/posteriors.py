"""Posteriors beside their peers, one thread, in turn: exact GPs, Laplace fits, HMC gradients, an ensemble.

python -m benchmarks.posteriors [gp laplace hmc ensemble]; peers: scikit-learn, gpytorch, laplace-torch and
pyro-ppl.
"""

import argparse
from typing import Any

import torch
from torch import nn

from benchmarks.record import interleaved, ratio, record
from margin.bayes.gp.learning import regression
from margin.bayes.gp.regression import GaussianProcess, log_evidence
from margin.bayes.laplace.learning import laplace
from margin.bayes.mcmc.chains import hamiltonian
from margin.core.types import Batch
from margin.engine.loop import State
from margin.sklearn import MarginClassifier

DOUBLE = torch.float64


def compared(what: str, times: dict[str, list[float]], peer: str, target: float) -> dict[str, object]:
    """How many times as fast as a peer."""
    faster, least, most = ratio(times, peer, "ours")
    return {
        "what": f"{what}: time of {peer} / ours",
        "value": round(faster, 3),
        "unit": "ratio",
        "interval": [round(least, 3), round(most, 3)],
        "target": f">= {target}",
        "met": faster >= target,
    }


def equal(what: str, ours: torch.Tensor, other: torch.Tensor, most: float) -> dict[str, object]:
    """The largest relative difference of two numbers that should be one."""
    gap = float(((ours - other).abs() / other.abs().clamp_min(1e-12)).max())
    return {"what": what, "value": gap, "unit": "1", "target": f"<= {most:g}", "met": gap <= most}


def gp(n: int, rounds: int) -> list[dict[str, object]]:
    """Exact inference and 500 predictions, alone and with a gradient of the evidence as a search takes it."""
    import gpytorch
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=generator, dtype=DOUBLE)
    y = (2 * x[:, 0]).sin() + 0.3 * torch.randn(n, generator=generator, dtype=DOUBLE)
    y = (y - y.mean()) / y.std(correction=0)
    q = torch.randn(500, 8, generator=generator, dtype=DOUBLE)
    found: dict[str, Any] = {}
    gradient = False

    def ours() -> None:
        model = GaussianProcess(8, n, lengthscale=2.0, noise=0.1, learn="none").double()
        if gradient:
            log_evidence(x, y, torch.ones_like(y), model.hyperparameters, "rbf")
        metrics = regression()(State({"model": model}), Batch((x,), y))
        found["evidence"], found["law"] = metrics["evidence"], model.predictive(q, noise=False)

    def scikit() -> None:
        kernel = ConstantKernel(1.0) * RBF([2.0] * 8) + WhiteKernel(0.1) if gradient else RBF(2.0)
        search = (lambda loss, theta, bounds: (theta, loss(theta)[0])) if gradient else None
        alpha = 1e-10 if gradient else 0.1
        peer = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=search).fit(x.numpy(), y.numpy())
        found["scikit"] = peer.log_marginal_likelihood_value_, *peer.predict(q.numpy(), return_std=True)

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=8))

        def forward(self, z: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))

    def peer() -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Exact(likelihood).double()
        model.covar_module.base_kernel.lengthscale, likelihood.noise = 2.0, 0.1
        model.covar_module.outputscale = 1.0
        with torch.set_grad_enabled(gradient), gpytorch.settings.fast_computations(False, False, False):
            model.train(), likelihood.train()
            value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), y)
            if gradient:
                value.backward()
        with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
            model.eval()
            found["gpytorch"] = model(q).variance

    times = interleaved(rounds, ours=ours, **{"scikit-learn": scikit, "gpytorch": peer})
    plain = [compared(f"GP, n = {n}, fixed", times, name, 1.5) for name in ("scikit-learn", "gpytorch")]
    evidence = torch.tensor([found["evidence"]], dtype=DOUBLE)
    checks = [
        equal(
            f"GP, n = {n}: evidence, beside scikit-learn", evidence, torch.tensor([found["scikit"][0]]), 1e-8
        ),
        equal(
            f"GP, n = {n}: deviations, beside scikit-learn",
            found["law"].variance.sqrt(),
            torch.from_numpy(found["scikit"][2]),
            1e-6,
        ),
    ]
    gradient = True
    times = interleaved(max(rounds // 2, 2), ours=ours, **{"scikit-learn": scikit, "gpytorch": peer})
    what = f"GP, n = {n}, with a gradient of the evidence in 8 length scales, signal and noise"
    return [*checks, *plain, *(compared(what, times, name, 1.5) for name in ("scikit-learn", "gpytorch"))]


def laplaces(n: int, rounds: int) -> list[dict[str, object]]:
    """Fit and predictions of a last layer's and of a Kronecker posterior of 20-200-100-10, without biases."""
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    x, labels = torch.randn(n, 20), torch.randint(10, (n,))
    shapes = (
        nn.Linear(20, 200, False),
        nn.ReLU(),
        nn.Linear(200, 100, False),
        nn.ReLU(),
        nn.Linear(100, 10, False),
    )
    net = nn.Sequential(*shapes)
    loader, q, rows = DataLoader(TensorDataset(x, labels), 256), torch.randn(500, 20), []
    for structure in ("last", "kron"):
        found: dict[str, torch.Tensor] = {}

        def ours(structure: Any = structure, found: dict[str, torch.Tensor] = found) -> None:
            with torch.no_grad():
                found["ours"] = laplace(net, x, labels, structure=structure, learn="none")(q).exp()

        def peer(structure: Any = structure, found: dict[str, torch.Tensor] = found) -> None:
            subset = "last_layer" if structure == "last" else "all"
            form = "full" if structure == "last" else "kron"
            other = Laplace(net, "classification", subset_of_weights=subset, hessian_structure=form)
            other.fit(loader)
            found["peer"] = other(q, link_approx="probit").detach()

        often = rounds if structure == "last" else min(rounds, 3)  # half a minute a round
        times = interleaved(often, ours=ours, **{"laplace-torch": peer})
        rows += [
            equal(f"Laplace, {structure}: probabilities", found["ours"], found["peer"], 1e-4),
            compared(
                f"Laplace, {structure}, {n} examples, fit and 500 predictions", times, "laplace-torch", 1.5
            ),
        ]
    return rows


def hmc(n: int, rounds: int) -> list[dict[str, object]]:
    """20 trajectories of 20 leapfrog steps on a logistic regression of 20 weights, one chain."""
    import pyro
    from pyro.infer.mcmc import HMC, MCMC

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=generator, dtype=DOUBLE)
    y = (x[:, 0] + torch.randn(n, generator=generator, dtype=DOUBLE) > 0).double()
    pyro.set_rng_seed(0)

    def energy(theta: torch.Tensor) -> torch.Tensor:
        logits = theta @ x.T
        return nn.functional.softplus(logits).sum(1) - logits @ y + theta.square().sum(1) / 2

    def ours() -> None:
        start = torch.zeros(1, 20, dtype=DOUBLE)
        hamiltonian(energy, start, draws=20, step=0.01, steps=20, jitter=0.0, generator=generator)

    def peer() -> None:
        kernel = HMC(
            potential_fn=lambda p: energy(p["w"][None])[0],
            step_size=0.01,
            num_steps=20,
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        start = {"w": torch.zeros(20, dtype=DOUBLE)}
        MCMC(kernel, num_samples=20, warmup_steps=0, initial_params=start, disable_progbar=True).run()

    return [
        compared(
            f"HMC, logistic regression of {n} x 20, 400 gradients",
            interleaved(rounds, ours=ours, **{"pyro-ppl": peer}),
            "pyro-ppl",
            1.5,
        )
    ]


def ensemble(n: int, rounds: int) -> list[dict[str, object]]:
    """Ten epochs of ten networks of 50 units side by side, and of one."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 10, generator=generator).numpy()
    y = (x[:, 0] * x[:, 1] > 0).astype(int)

    def ten() -> None:
        options = {"members": 10, "base_options": {"hidden": [50]}}
        MarginClassifier("ensemble", options=options, epochs=10, random_state=0).fit(x, y)

    def one() -> None:
        MarginClassifier("mlp", options={"hidden": [50]}, epochs=10, random_state=0).fit(x, y)

    slower, least, most = ratio(interleaved(rounds, ten=ten, one=one), "ten", "one")
    return [
        {
            "what": f"ensemble of 10 networks of 50 units, {n} examples: time / that of one",
            "value": round(slower, 3),
            "unit": "ratio",
            "interval": [round(least, 3), round(most, 3)],
            "target": "<= 3",
            "met": slower <= 3,
        }
    ]


PARTS = {"gp": (gp, 2000), "laplace": (laplaces, 4000), "hmc": (hmc, 500), "ensemble": (ensemble, 2000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--share", type=float, default=1.0, help="of the examples, for a trial")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.parts:
        measure, n = PARTS[name]
        record(
            f"bayes/{name}_speed",
            title=f"Posteriors beside their peers: {measure.__doc__}",
            figures=measure(int(n * given.share), given.rounds),
            packages=("scikit-learn", "gpytorch", "laplace-torch", "pyro-ppl"),
            threads=1,
        )


if __name__ == "__main__":
    main()
