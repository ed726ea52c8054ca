"""An epoch of a VAE 784-400-20 on MNIST (MARGIN_DATA) through fit beside a loop written by hand."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.record import interleaved, ratio, record
from margin.data.examples import Arrays, Shuffled
from margin.data.open import open_data
from margin.engine.build import optimizer_of
from margin.engine.loop import GradientUpdate, State, descent, fit
from margin.generative.autoencoder.vae import dense_vae
from margin.generative.autoencoder.vae_bounds import negative_elbo

BATCH, CODE, HIDDEN = 128, 20, 400


class Plain(nn.Module):
    """The same network as anyone writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(784, HIDDEN), nn.Linear(HIDDEN, 2 * CODE)
        self.second, self.last = nn.Linear(CODE, HIDDEN), nn.Linear(HIDDEN, 784)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, log_variance = self.head(F.relu(self.first(x))).chunk(2, 1)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        logits = self.last(F.relu(self.second(z)))
        entropy = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = (mean.square() + log_variance.exp() - log_variance - 1).sum() / 2
        return (entropy + divergence) / len(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {"val": 0.0})
    X = data.splits["train"].inputs[0][: arguments.rows].float().div(255).flatten(1)
    plain = Plain()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.0, fused=True)

    def by_hand() -> None:
        order, total = torch.randperm(len(X)), 0.0
        for i in range(0, len(X), BATCH):
            optimizer.zero_grad()
            loss = plain(torch.bernoulli(X[order[i : i + BATCH]]))
            loss.backward()
            optimizer.step()
            total += loss.item()

    ours = dense_vae(784, code=CODE, hidden=(HIDDEN,), decoder="bernoulli")
    batches = Shuffled(Arrays((X,)), BATCH, seed=0)
    adam = optimizer_of(ours, "AdamW", lr=1e-3, options={"weight_decay": 0.0}, decay_norms=True)
    state, step = State({"model": ours}, {"": adam}), descent(negative_elbo, GradientUpdate())

    def by_fit() -> None:
        fit(state, batches, step, max_steps=state.step + batches.per_epoch)

    times = interleaved(arguments.rounds, by_hand=by_hand, by_fit=by_fit)
    cost, cheapest, dearest = ratio(times, "by_fit", "by_hand")
    record(
        "generative/vae_epoch",
        title=f"An epoch of a VAE 784-400-20 on {len(X):,} digits through fit beside a hand-written loop, "
        f"batch {BATCH}, one thread, medians of {arguments.rounds} interleaved rounds",
        figures=[
            {
                "what": "epoch through fit / by hand",
                "value": cost,
                "unit": "ratio",
                "interval": [cheapest, dearest],
                "target": "<= 1.10",
                "met": cost <= 1.10,
            }
        ],
        seconds=times,
    )


if __name__ == "__main__":
    main()
