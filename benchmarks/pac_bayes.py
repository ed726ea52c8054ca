"""An epoch of a law over the weights of 784-600-600-10 beside a plain reimplementation of the published code.

Perez-Ortiz et al. (2021) hold mean and rho of each layer as parameters, sigma = ln(1 + e^rho), draw each
layer's weights in its forward, and let autograd differentiate the divergence too; SGD with momentum moves
them. Both descend on the quadratic bound with the cut-off cross-entropy on the same batches of 250 of 30,000
rows of noise, one thread, epochs in turn after one of each that is not counted. Part of an epoch is measured:
so many steps.
"""

import argparse
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.engine.loop import GradientUpdate, State, fit, risk
from margin.theory.bounds.posterior import pac_bayes

ROWS, BATCH, P_MIN, DELTA, STD = 30_000, 250, 1e-5, 0.05, 0.03
WIDTHS = (784, 600, 600, 10)


class ProbLinear(nn.Module):
    """A linear layer whose weights are drawn in each forward, as the published code writes it."""

    def __init__(self, inputs: int, outputs: int, rho: float) -> None:
        super().__init__()
        std = 1 / math.sqrt(inputs)
        self.weight_mu = nn.Parameter(torch.empty(outputs, inputs).normal_(0, std).clamp_(-2 * std, 2 * std))
        self.bias_mu = nn.Parameter(torch.zeros(outputs))
        self.weight_rho = nn.Parameter(torch.full((outputs, inputs), rho))
        self.bias_rho = nn.Parameter(torch.full((outputs,), rho))
        for name in ("weight", "bias"):
            for part in ("mu", "rho"):
                self.register_buffer(f"{name}_{part}_prior", getattr(self, f"{name}_{part}").detach().clone())
        self.kl = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        drawn, self.kl = [], torch.zeros(())
        for name in ("weight", "bias"):
            mu, rho = getattr(self, f"{name}_mu"), getattr(self, f"{name}_rho")
            sigma = torch.log(1 + torch.exp(rho))
            drawn.append(mu + sigma * torch.randn(mu.shape))
            prior = getattr(self, f"{name}_mu_prior")
            prior_sigma = torch.log(1 + torch.exp(getattr(self, f"{name}_rho_prior")))
            b1, b0 = torch.pow(sigma, 2), torch.pow(prior_sigma, 2)
            terms = torch.log(torch.div(b0, b1)) + torch.div(torch.pow(mu - prior, 2), b0) + torch.div(b1, b0)
            self.kl = self.kl + torch.mul(terms - 1, 0.5).sum()
        return F.linear(x, *drawn)


class Plain:
    """Training steps as the published code takes them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        rho = math.log(math.exp(STD) - 1)
        self.layers = nn.ModuleList(ProbLinear(a, b, rho) for a, b in pairwise(WIDTHS))
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=0.001, momentum=0.95)

    def bound(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        log_p = torch.clamp(F.log_softmax(self.layers[-1](x), 1), math.log(P_MIN))
        loss = F.nll_loss(log_p, y) / math.log(1 / P_MIN)
        kl = sum(layer.kl for layer in self.layers)
        ratio_kl = torch.div(kl + math.log(2 * math.sqrt(ROWS) / DELTA), 2 * ROWS)
        return torch.pow(torch.sqrt(loss + ratio_kl) + torch.sqrt(ratio_kl), 2)

    def step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        self.bound(x, y).backward()
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = Generator().manual_seed(0)
    x = torch.rand(ROWS, 784, generator=generator)
    data = Arrays((x,), (x @ torch.randn(784, 10, generator=generator)).argmax(1))
    plain, batches = Plain(), Shuffled(data, BATCH, seed=0)
    model = nn.Sequential(nn.Linear(784, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 10))
    state = State({"model": model}, {"": torch.optim.AdamW(model.parameters())}, seed=0)
    total = arguments.steps * (arguments.rounds + 1)
    # the prior is where the weights begin, on all rows, as the peer's
    rule = {"prior_share": 0.0, "prior_time": 0.0, "prior_std": STD, "p_min": P_MIN, "delta": DELTA}
    step = pac_bayes(risk(CLASSES), GradientUpdate(), CLASSES, data, total, "none", "", **rule)  # type: ignore[arg-type]
    taken = [0]

    def of_plain() -> None:
        for i in range(taken[0], taken[0] + arguments.steps):
            batch = batches(i)
            plain.step(batch.inputs[0], batch.targets)
        taken[0] += arguments.steps

    def of_margin() -> None:
        fit(state, batches, step, max_steps=state.step + arguments.steps)

    times = interleaved(arguments.rounds, margin=of_margin, plain=of_plain)
    middle, least, most = ratio(times, "margin", "plain")
    each = {name: sorted(t)[len(t) // 2] / arguments.steps * ROWS / BATCH for name, t in times.items()}
    record(
        "theory/pac_bayes",
        title="An epoch of a law over the weights of 784-600-600-10, beside the published code's way",
        figures=[
            {
                "what": "seconds an epoch, margin / plain reimplementation",
                "value": middle,
                "unit": "1",
                "interval": [least, most],
                "target": "<= 0.8",
                "met": middle <= 0.8,
            },
            *({"what": f"seconds an epoch, {name}", "value": t, "unit": "s"} for name, t in each.items()),
        ],
        steps=arguments.steps,
        seeds=[0],
    )


if __name__ == "__main__":
    main()
