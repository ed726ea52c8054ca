"""An MLP with and without shifted training images, five paired seeds: digits, and 1,000 labels of MNIST.

A pair has one training set, one initialization, one order of the examples, as many steps. It is judged on the
held-out images as they are, and on the same ones moved at random. The digits fill their 8 x 8 pixels to the
border, so the test images hold no shift that training could teach; those of MNIST do.
"""

import argparse
import time

import torch
from torch import Generator

from benchmarks.record import record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.data.open import open_data
from margin.data.transforms.augmentation import augmented, transforms_of
from margin.engine.evaluation import evaluate
from margin.engine.loop import GradientUpdate, State, descent, fit, risk, scheduled
from margin.feedforward.mlp.model import MLP
from margin.nn.preprocessed import Preprocessed
from margin.optim.schedules import schedule_of
from margin.runs.seed_interval import summary

SEEDS = range(5)
SETTINGS = {
    "digits": {"words": ("shift:1", "crop:1"), "hidden": (256, 256), "epochs": 100, "labels": None},
    "mnist": {"words": ("crop:2",), "hidden": (256,), "epochs": 60, "labels": 1000},
}


def opened(name, seed):
    if name == "digits":
        return open_data("digits", {"split_seed": seed, "val": 0.0})
    return open_data("mnist", {"val": 0.05})


def accuracies(data, words, setting, seed):
    """On held-out images as they are, and moved by the last of the setting's words."""
    torch.manual_seed(seed)
    core = MLP(data.spec["in_features"], data.spec["num_classes"], hidden=setting["hidden"])
    model = Preprocessed(data.preprocess, core).float()
    train, test = data.splits["train"], data.splits["test"]
    if setting["labels"]:
        chosen = torch.randperm(len(train), generator=Generator().manual_seed(seed))[: setting["labels"]]
        train = Arrays(*train.take(chosen, Generator())[:2])
    batches = Shuffled(augmented(train, transforms_of(words, data.spec)), 64, seed=seed)
    total = setting["epochs"] * batches.per_epoch
    state = State({"model": model}, {"": torch.optim.AdamW(core.parameters(), lr=2e-3)}, seed=seed)
    step = scheduled(descent(risk(CLASSES), GradientUpdate()), schedule_of("cosine", total=total, warmup=0))
    fit(state, batches, step, max_steps=total)
    found = []
    for held in (test, augmented(test, transforms_of(setting["words"][-1:], data.spec))):
        whole = held.take(torch.arange(len(test)), Generator().manual_seed(seed))
        found.append(evaluate(model, [whole], CLASSES, risk(CLASSES))["accuracy"])
    return found


def rows_of(name):
    setting, rows = SETTINGS[name], []
    for seed in SEEDS:
        data = opened(name, seed)
        row = {}
        for words in ((), *((word,) for word in setting["words"])):
            label = words[0] if words else "plain"
            row[label], row[f"{label}, moved"] = accuracies(data, words, setting, seed)
        for word in setting["words"]:
            row[f"gain of {word}"] = row[word] - row["plain"]
            row[f"gain of {word}, moved"] = row[f"{word}, moved"] - row["plain, moved"]
        rows.append(row)
        print(row, flush=True)
    return rows


def figure(found, key, what, **more):
    values = found[key]
    return {
        "what": what,
        "value": values["mean"],
        "unit": "1",
        "interval": [values["low"], values["high"]],
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=SETTINGS)
    name = parser.parse_args().which
    setting = SETTINGS[name]
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows = rows_of(name)
    found, last = summary(rows), setting["words"][-1]
    figures = [figure(found, "plain", "test accuracy, plain")]
    for word in setting["words"]:
        for key, on in (
            (f"gain of {word}", "test images"),
            (f"gain of {word}, moved", f"test images under {last}"),
        ):
            met = {"target": "interval above 0", "met": found[key]["low"] > 0}
            figures.append(figure(found, key, f"gain in accuracy by {word} on {on}, paired", **met))
    figures.append({"what": "seconds in all", "value": time.perf_counter() - start, "unit": "s"})
    of = f"{setting['labels']:,} labels of {name}" if setting["labels"] else name
    record(
        f"feedforward/augmentation_{name}",
        title=f"MLP {'-'.join(map(str, setting['hidden']))} on {of}, with and without random shifts of the "
        "training images, 5 paired seeds",
        figures=figures,
        packages=("scikit-learn",),
        seeds=list(SEEDS),
        metrics=rows,
    )


if __name__ == "__main__":
    main()
