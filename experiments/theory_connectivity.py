"""Two trainings of one MLP on digits: the barriers of the straight, the aligned and the bent path.

Frankle et al. (2020): a barrier on the straight path. Ainsworth, Hayase and Srinivasa (2023): less of one
once hidden units are aligned. Garipov et al. (2018): none on a bent path.
"""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

import margin
from benchmarks.record import record
from margin import Training
from margin.auditing.subject.trained import subject_of_run
from margin.data.sets.bundled import digits
from margin.theory.curvature.connectivity_claims import after_alignment, curved, from_initial, linear

SEEDS = range(5)
MODEL = {"hidden": [128, 128]}


def main() -> None:
    data = digits()
    claims = {
        "straight": linear,
        "aligned": after_alignment,
        "bent": curved,
        "from the first weights": from_initial,
    }
    found: dict[str, list[float]] = {name: [] for name in claims}
    with tempfile.TemporaryDirectory() as directory:
        runs = [
            margin.train(
                "feedforward/mlp",
                data,
                MODEL,
                Training(seed=seed, epochs=15, batch_size=64),
                out=Path(directory) / str(seed),
            )
            for seed in (*SEEDS, len(SEEDS))
        ]
        for one, other in pairwise(runs):
            subject = replace(subject_of_run(one, data), beside=margin.load(other))
            for name, ask in claims.items():
                found[name].append(float(ask(subject).value))
    values = {name: torch.tensor(v, dtype=torch.float64) for name, v in found.items()}

    def row(what: str, each: torch.Tensor, **more: object) -> dict[str, object]:
        half = 2.776 * float(each.std()) / len(each) ** 0.5  # Student's t, 4 degrees of freedom, 95 %
        mean = float(each.mean())
        return {"what": what, "value": mean, "unit": "nats", "interval": [mean - half, mean + half], **more}

    less = [
        row(f"barrier of the {name} path less that of the straight one", values[name] - values["straight"])
        for name in ("aligned", "bent")
    ]
    for figure in less:
        figure |= {
            "target": "the paired 95 % interval over 5 pairs lies below 0",
            "published": "below 0 (Ainsworth et al. 2023, Figure 1; Garipov et al. 2018, Figure 2)",
            "met": figure["interval"][1] < 0,
        }
    record(
        "theory/connectivity",
        title="Barriers of the training loss between two trainings of an MLP 128-128 on digits, 5 pairs",
        figures=[
            *(row(f"barrier of the {name} path", values[name]) for name in ("straight", "aligned", "bent")),
            *less,
            row(
                "largest rise on the straight path from the first weights to the trained ones",
                values["from the first weights"],
                published="0 for most networks (Goodfellow, Vinyals and Saxe 2015, Section 3)",
            ),
        ],
        seeds=[*SEEDS, len(SEEDS)],
        barriers=found,
    )


if __name__ == "__main__":
    main()
