"""A VAE on binarized MNIST (MARGIN_DATA): ELBO and importance-weighted bounds beside Burda et al. 2016.

Grey pixels are drawn to bits afresh at each step in training, and once, from seed 0, for the official test
part. The network is theirs of one stochastic layer, 784-200-200-50-200-200-784 with tanh. All 60,000 digits
are trained on, for far fewer epochs than their 3,280; the weights of the last step are judged, and nothing is
chosen on test.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin import Training, load, train
from margin.data.open import open_data
from margin.generative.autoencoder.vae_bounds import elbo, importance_bound
from margin.nn.preprocessed import core_of, features_of

OPTIONS = {"code": 50, "hidden": (200, 200), "activation": "tanh", "decoder": "bernoulli"}
PUBLISHED = "-86.76 (VAE, k = 1), -84.78 (IWAE, k = 50), 3,280 epochs; Burda et al. 2016, Table 1"
BITS, DRAWS = 0, 1
"""Seeds of the test part's bits, and of the codes by which it is judged."""


def figure(what: str, terms: Tensor, **more: object) -> dict[str, object]:
    """A mean over digits in nats, with its interval of 95 %."""
    mean, half = float(terms.mean()), 1.96 * float(terms.std()) / math.sqrt(len(terms))
    return {"what": what, "value": mean, "unit": "nats", "interval": [mean - half, mean + half], **more}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--digits", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=1_000)
    arguments = parser.parse_args()
    data, start = open_data("mnist", {"val": 0.0}), time.process_time()
    training = Training(
        epochs=arguments.epochs,
        batch_size=100,
        lr=1e-3,
        schedule="cosine",
        scale="unit",
        seed=0,
        threads=1,
        patience=0,
        evaluate_every=600 * arguments.epochs,
    )
    with tempfile.TemporaryDirectory() as directory:
        run = train("generative/vae", data, OPTIONS, training, out=Path(directory) / "run")
        model = load(run, "last").eval()
    seconds, core = time.process_time() - start, core_of(model)
    grey = features_of(model, data.splits["test"].inputs[0][: arguments.digits].float())
    bits = core.likelihood.observed(grey, Generator().manual_seed(BITS))
    generator = Generator().manual_seed(DRAWS)
    with torch.no_grad():
        pieces = bits.split(100)
        lower = torch.cat([elbo(core, x, 10, generator) for x in pieces]).double()
        hundred = torch.cat([importance_bound(core, x, 100, generator) for x in pieces]).double()
        few = bits[: arguments.few].split(100)
        thousands = torch.cat([importance_bound(core, x, 5000, generator) for x in few]).double()
    record(
        "generative/vae_mnist",
        title=f"A VAE of 50 codes on binarized MNIST, {arguments.epochs} epochs, the test part drawn once",
        figures=[
            figure(f"ELBO, {len(lower):,} digits", lower, target=">= -105", met=bool(lower.mean() >= -105)),
            figure(f"IWAE-100, {len(hundred):,} digits", hundred),
            figure(
                f"IWAE-5000, the first {len(thousands):,} digits",
                thousands,
                published=PUBLISHED,
            ),
            figure("IWAE-5000 less ELBO, the same digits", thousands - lower[: len(thousands)]),
            {"what": "seconds of training, one thread", "value": round(seconds), "unit": "s"},
        ],
        seed=0,
        seeds_of_evaluation={"bits": BITS, "codes": DRAWS},
        options={name: list(v) if isinstance(v, tuple) else v for name, v in OPTIONS.items()},
        training={name: v for name, v in training.as_json().items() if v is not None},
    )


if __name__ == "__main__":
    main()
