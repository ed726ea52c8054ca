"""UCI regression on the 20 given splits: RMSE and log-likelihood of models that state a law of each value.

Every choice is fixed beforehand, nothing is selected on test. What a split gave is kept in a file, so that a
run that was stopped goes on, and the record is written anew after each row, a set and a model:
python -m experiments.bayes_uci [--rows energy:mc_dropout_2016 ...] [--record bayes/uci_more]
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import record
from margin.nn.predictive import predictive_of
from margin.sklearn import MarginRegressor

HIDDEN = {"base_options": {"hidden": [50]}}
DESCENT = {"epochs": 200, "batch_size": 32, "lr": 5e-3, "training": {"schedule": "cosine", "patience": 0}}
MODELS = {
    "gp": ("bayes/gp", {}, {}),
    "linear": ("bayes/linear", {}, {}),
    "ensemble": ("bayes/ensemble:values", {"members": 5, **HIDDEN}, DESCENT),
    "mc_dropout": (
        "bayes/mc_dropout:values",
        {"samples": 100, "base_options": {"hidden": [50], "dropout": 0.05}},
        {**DESCENT, "epochs": 400},
    ),
    "laplace": ("bayes/laplace", {"structure": "full", **HIDDEN}, {}),
    "hmc": ("bayes/hmc", HIDDEN, {"epochs": 200, "training": {"precision": "float32"}}),
    "mc_dropout_2016": (
        "bayes/mc_dropout:values",
        {
            "samples": 1000,
            "noise": "1 / 0.75 in the unit of the target",
            "base_options": {"hidden": [50], "dropout": 0.005, "input_dropout": 0.005},
        },
        {
            "epochs": 4000,
            "batch_size": 128,
            "lr": 1e-3,
            "training": {"optimizer": "Adam", "patience": 0, "optimizer_options": {"weight_decay": 0.0}},
        },
    ),
}
RECIPE = (
    "mc_dropout_2016 is the second recipe of Gal and Ghahramani's repository: one hidden layer of 50 units, "
    "dropout of features and units, squared error, Adam of rate 1e-3, batches of 128, 100 times 40 epochs, a "
    "noise that is known. What differs: they choose the share (0.005, 0.01, 0.05 or 0.1) and the precision "
    "of the noise (0.25, 0.5 or 0.75 of energy and yacht) on a fifth of each training part, here both are "
    "fixed at what their search chose on nearly all splits, 0.005 and 0.75; their weight decay of about 1e-7 "
    "is 0; 1,000 masks for 10,000, each the same for all examples. mc_dropout differs more: a share of 0.05 "
    "of the units alone, a variance stated for each input, 400 epochs of 32."
)
MISSING = (
    "yacht:mc_dropout_2016 boston:laplace energy:laplace concrete:gp concrete:laplace wine:laplace wine:gp "
    "concrete:ensemble wine:ensemble yacht:hmc boston:hmc energy:mc_dropout_2016"
)
"""What bayes/uci lacks, the quicker rows first. Chains take half a minute a split: the two smallest sets."""

SETS = {
    "yacht": ("yacht", "dropout 0.67 +- 0.05 / -1.25 +- 0.01; ensemble 1.58 / -1.18; PBP 1.02 / -1.63"),
    "boston": (
        "bostonHousing",
        "dropout 2.90 +- 0.18 / -2.40 +- 0.04; ensemble 3.28 / -2.41; PBP 3.01 / -2.57",
    ),
    "energy": ("energy", "dropout 0.54 +- 0.06 / -1.21 +- 0.01; ensemble 2.09 / -1.38; PBP 1.80 / -2.04"),
    "concrete": ("concrete", "dropout 4.82 +- 0.16 / -2.93 +- 0.02; ensemble 6.03 / -3.06; PBP 5.67 / -3.16"),
    "wine": (
        "wine-quality-red",
        "dropout 0.62 +- 0.01 / -0.93 +- 0.01; ensemble 0.64 / -0.94; PBP 0.635 / -0.97",
    ),
}
"""RMSE / log-likelihood. Gal and Ghahramani 2016: their repository's table, on these splits. Of other splits:
Lakshminarayanan et al. 2017, Table 1; Hernandez-Lobato and Adams 2015, Table 1."""


def scores(name: str, x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int) -> dict:
    """The RMSE and the mean log-density on the test part, in the unit of the target."""
    model, options, training = MODELS[name]
    if "noise" in options:
        options = options | {"noise": 1 / (0.75 * float(y[train].var()))}
    began = time.perf_counter()
    fitted = MarginRegressor(model, options=options, random_state=seed, **training).fit(x[train], y[train])
    seconds = time.perf_counter() - began
    with torch.no_grad():
        law = predictive_of(fitted.module_, torch.tensor(x[test]))
    target = torch.tensor(y[test])
    rmse = (law.mean - target).square().mean().sqrt()
    return {"rmse": float(rmse), "ll": float(law.log_density(target).mean()), "seconds": round(seconds, 2)}


def summary(name: str, model: str, found: list[dict]) -> list[dict[str, object]]:
    """Two figures of a row: the mean of all splits and twice its standard error."""
    figures: list[dict[str, object]] = []
    for score, what in (("rmse", "RMSE"), ("ll", "log-likelihood")):
        values = np.array([row[score] for row in found])
        error = values.std(ddof=1) / len(values) ** 0.5
        figures.append(
            {
                "what": f"{name}, {model}: {what}, {len(values)} splits, -+ 2 standard errors",
                "value": round(float(values.mean()), 4),
                "unit": "target" if score == "rmse" else "nat",
                "interval": [round(float(values.mean() + s * 2 * error), 4) for s in (-1, 1)],
                "published": SETS[name][1],
            }
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", default=MISSING.split(), help="SET:MODEL, each of them")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--record", default="bayes/uci_more", help="the name under which figures are kept")
    parser.add_argument("--kept", type=Path, default=Path("build/bayes_uci.jsonl"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.kept.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in given.kept.read_text().splitlines()] if given.kept.exists() else []
    done = {(row["set"], row["model"], row["split"]): row for row in rows}
    figures: list[dict[str, object]] = []
    models = list(dict.fromkeys(row.partition(":")[2] for row in given.rows))
    for name, _, model in (row.partition(":") for row in given.rows):
        file = np.load(Path(os.environ["MARGIN_DATA"]) / "uci" / f"{SETS[name][0]}.npz")
        data, parts = file["data"], zip(file["train_idx"], file["test_idx"], strict=True)
        x, y = data[:, file["feature_cols"]].astype(float), data[:, int(file["target_col"])].astype(float)
        for split, (train, test) in enumerate(list(parts)[: given.splits]):
            if (name, model, split) not in done:
                found = scores(model, x, y, train, test, split)
                done[name, model, split] = {"set": name, "model": model, "split": split, **found}
                with given.kept.open("a") as kept:
                    kept.write(json.dumps(done[name, model, split]) + "\n")
        figures += summary(name, model, [done[name, model, split] for split in range(given.splits)])
        record(
            given.record,
            title="UCI regression on given splits: RMSE and log-likelihood of models that state a law",
            figures=figures,
            settings={m: dict(zip(("model", "options", "training"), MODELS[m], strict=True)) for m in models},
            recipe=RECIPE,
        )


if __name__ == "__main__":
    main()
