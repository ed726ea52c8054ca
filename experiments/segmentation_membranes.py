"""U-Net on the membranes of the 2012 ISBI challenge (Ronneberger, Fischer and Brox 2015, Section 4).

The challenge's own test labels are not public, so its 30 training images are split three times at random, 24
for training and 6 held out, which nothing is chosen by: width, crop and augmentation were set beforehand, and
the last weights are judged. Errors are over images, and from split to split.

The challenge's pixel error is 1 - F, with F the Dice coefficient of what its labels hold above 0, the cells
(PixelError of Fiji's Trainable Segmentation, which computed it, counts a label > 0 as positive). So the
target is of the cells; the Dice coefficient of the lines between them stands beside it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Training, open_source, train
from margin.auditing.subject.trained import subject_of_run
from margin.data.data_home import folder_of
from margin.engine.runs import Run
from margin.runs.verbs import resume
from margin.theory.prediction.risk import accuracy
from margin.vision.segmentation.overlap import dice, iou

RUNS = Path("build/membranes")
NAMES = {"0": "membrane", "255": "cell"}

HOW = Training(
    epochs=60, batch_size=2, lr=3e-3, schedule="cosine", warmup=20, patience=0, threads=1,
    augment=["flip", "rotate:180", "elastic:10"], evaluate_every=60,
)  # fmt: skip


def trained(split: int, epochs: int) -> Run:
    """The run of a split, begun, taken up where it stopped, or finished."""
    out = RUNS / f"split-{split}"
    if (out / "metrics.json").exists():
        return Run(out)
    if (out / "run.yaml").exists():
        return resume(out)
    options = {"crop": (256, 256), "test": 0.2, "val": 0.0, "split_seed": split}
    data = open_source(str(folder_of("isbi-membrane")), options)
    return train("unet", data, {"width": 16, "levels": 4}, replace(HOW, seed=split, epochs=epochs), out=out)


def measured(run: Run) -> dict[str, list[float]]:
    """Dice, intersection over union and accuracy of the held-out images, each with its 95 % interval."""
    subject = subject_of_run(run)
    found = {}
    for name, finding in (("Dice", dice(subject)), ("IoU", iou(subject))):
        low, high = finding.shown
        for k, label in enumerate(finding.labels):
            found[f"{name}, {NAMES[label]}"] = [float(finding.value[k]), float(low[k]), float(high[k])]
    one = accuracy(subject)
    low, high = one.shown
    found["pixel accuracy"] = [float(one.value), float(low), float(high)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=HOW.epochs)
    arguments = parser.parse_args()
    rows: list[dict[str, list[float]]] = []
    for split in range(arguments.splits):
        kept = RUNS / f"split-{split}.json"
        if not kept.exists():
            kept.write_text(json.dumps(measured(trained(split, arguments.epochs))))
        rows.append(json.loads(kept.read_text()))
        print(split, rows[-1], flush=True)
        written(rows, arguments.epochs)


def written(rows: list[dict[str, list[float]]], epochs: int) -> None:
    """Write what is known so far."""
    figures: list[dict[str, object]] = []
    for name in rows[0]:
        x = torch.tensor([row[name][0] for row in rows], dtype=torch.float64)
        ends = [row[name][1:] for row in rows]
        figure: dict[str, object] = {
            "what": f"{name}, mean over {len(rows)} splits",
            "value": float(x.mean()),
            "unit": "1",
            "range over splits": [float(x.min()), float(x.max())],
            "interval over the six images of each split": ends,
        }
        if name == f"Dice, {NAMES['255']}":
            figure |= {"target": ">= .90", "met": float(x.mean()) >= 0.9}
        figures.append(figure)
    record(
        "vision/membranes",
        title="U-Net on the ISBI 2012 membranes, 24 images of 512 x 512 for training, 6 held out",
        figures=figures,
        splits=rows,
        training={
            "width": 16,
            "levels": 4,
            "crop": 256,
            "epochs": epochs,
            "lr": HOW.lr,
            "augment": HOW.augment,
        },
    )


if __name__ == "__main__":
    main()
