"""Risk certificates on MNIST (MARGIN_DATA): laws over the weights of 784-600-600-10 and 784-600-2.

With a prior learned on half of the training rows; and with the prior at the initial weights, where the law
begins, of ten classes and of two (0-4 against 5-9). Deviations, rates and cut-offs of these were chosen among
a few in trainings of one to ten epochs on the same rows, for which a union bound would charge less than 3 of
thousands of nats. The published network with a learned prior has a third hidden layer, and its law descends
on the prior's rows too. Pixels are mapped from [0, 255] to [0, 1], which no row chooses; nothing is held
out of the training part, and the official test part is looked at once, at the end. Each training is a run
under --out: started again, the script goes on with the one that was interrupted and leaves what is finished.
"""

import argparse
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from margin import Run, Training, resume, train
from margin.auditing.subject.trained import subject_of_run
from margin.data.examples import Arrays, Data
from margin.data.open import open_data
from margin.theory.bounds.certificate import held_out_risk


@dataclass(frozen=True)
class Case:
    """One training, and the published numbers that stand beside its own."""

    hidden: tuple[int, ...]
    published: str
    target: float
    epochs: int
    binary: bool = False
    init: str | None = None
    dropout: float = 0.0
    rule: dict[str, Any] = field(default_factory=dict)


AT_THE_PRIOR = {"prior_share": 0.0, "prior_time": 0.0}
"""All rows are the bound's, and no step descends plainly: the law begins at a divergence of 0."""

CASES = {
    "learned prior": Case(
        (600, 600),
        "0.0279 certified, 0.0202 test error (fully connected, f_quad; Perez-Ortiz et al. 2021)",
        0.03,
        epochs=70,
        dropout=0.2,
        rule={"prior_share": 0.5, "prior_std": 0.01},
    ),
    "prior at initialization": Case(
        (600, 600),
        "0.134 certified, 0.035 test error (ten classes, a public re-implementation of Dziugaite and Roy)",
        0.134,
        epochs=100,
        init="he_normal",
        rule={**AT_THE_PRIOR, "prior_std": 0.03, "posterior_lr": 0.05, "p_min": 0.05},
    ),
    "two classes, prior at initialization": Case(
        (600,),
        "0.161 certified, 0.034 test error (Dziugaite and Roy 2017, Table 1)",
        0.161,
        epochs=150,
        binary=True,
        init="he_normal",
        rule={**AT_THE_PRIOR, "prior_std": 0.1, "posterior_lr": 0.03, "p_min": 0.1},
    ),
}


def data_of(case: Case) -> Data:
    data = open_data("mnist", {"val": 0.0})
    if not case.binary:
        return data
    splits = {
        name: Arrays(part.inputs, (part.targets >= 5).long(), dtype=part.dtype)
        for name, part in data.splits.items()
    }
    return replace(
        data, name="mnist 0-4 against 5-9", splits=splits, spec={**data.spec, "num_classes": 2},
        encoding={**data.encoding, "classes": ["0-4", "5-9"]}, origin={}, fingerprint=data.fingerprint + "-2",
    )  # fmt: skip


def trained(name: str, case: Case, out: Path, epochs: int | None, draws: int) -> tuple[Run, Data, float]:
    path, data, start = out / name.replace(", ", "-").replace(" ", "-"), data_of(case), time.perf_counter()
    if (path / "run.yaml").is_file():
        return resume(path, data), data, time.perf_counter() - start
    training = Training(
        epochs=epochs or case.epochs, batch_size=250, lr=1e-3, init=case.init, scale="unit", threads=1
    )
    options = {"hidden": case.hidden, "dropout": case.dropout}
    rule = {"delta": 0.035, "draws": draws, **case.rule}
    run = train("mlp", data, options, rule="pac_bayes", step=rule, training=training, out=path)
    return run, data, time.perf_counter() - start


def figures_of(name: str, case: Case, run: Run, data: Data, seconds: float) -> list[dict[str, object]]:
    metrics = run.metrics
    finding = held_out_risk(subject_of_run(run, data))
    low, high = (float(end) for end in finding.shown)
    return [
        {
            "what": f"{name}: certificate of the share of errors, delta .035",
            "value": metrics["certificate"],
            "unit": "1",
            "target": f"<= {case.target}",
            "published": case.published,
            "met": metrics["certificate"] <= case.target,
        },
        {
            "what": f"{name}: test error of drawn networks",
            "value": float(finding.value),
            "unit": "1",
            "interval": [low, high],
        },
        {"what": f"{name}: test error of the mean", "value": 1 - metrics["test_accuracy"], "unit": "1"},
        {"what": f"{name}: divergence from the prior", "value": metrics["certificate_kl"], "unit": "nat"},
        {"what": f"{name}: seconds of this call", "value": round(seconds, 1), "unit": "s"},
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/slt-mnist"))
    parser.add_argument("--epochs", type=int, help="of every case; each has its own if not given")
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    figures: list[dict[str, object]] = []
    for name in arguments.cases:
        run, data, seconds = trained(name, CASES[name], arguments.out, arguments.epochs, arguments.draws)
        figures += figures_of(name, CASES[name], run, data, seconds)
        record(
            "theory/mnist_certificates",
            title="Risk certificates of laws over weights on MNIST, certified on rows that no prior has seen",
            figures=figures,
            epochs={case: arguments.epochs or CASES[case].epochs for case in arguments.cases},
            draws=arguments.draws,
            seeds=[0],
        )


if __name__ == "__main__":
    main()
