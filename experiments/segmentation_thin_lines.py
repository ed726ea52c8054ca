"""What a U-Net loses whose way up reads nothing of the way down (Ronneberger et al. 2015, Section 2).

Lines one or two pixels wide in noise; the same network, seeds and batches, with and without the maps that are
passed across. The coarsest maps have a pixel for 8 x 8 of the image.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.record import record
from margin import Training, train
from margin.auditing.subject.trained import subject_of_run
from margin.data.sets.synthetic_geometry import thin_lines
from margin.runs.seed_interval import summary
from margin.vision.segmentation.overlap import dice

EPOCHS = 15


def line_dice(skips: str, seed: int) -> float:
    """The Dice coefficient of lines on the test part."""
    how = Training(
        seed=seed,
        epochs=EPOCHS,
        batch_size=8,
        lr=5e-3,
        schedule="cosine",
        patience=0,
        threads=1,
        evaluate_every=10**6,
    )
    data = thin_lines(examples=160, size=32, seed=seed)
    with tempfile.TemporaryDirectory() as directory:
        run = train("unet", data, {"width": 8, "levels": 4, "skips": skips}, how, out=Path(directory) / "run")
        return float(dice(subject_of_run(run, data)).value[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.seeds):
        joined, none = line_dice("joined", seed), line_dice("none", seed)
        rows.append({"joined": joined, "none": none, "joined less none, paired": joined - none})
        print(seed, rows[-1], flush=True)
    figures: list[dict[str, object]] = [
        {
            "what": f"Dice of lines, {name}",
            "value": row["mean"],
            "unit": "1",
            "interval": [row["low"], row["high"]],
        }
        for name, row in summary(rows).items()
    ]
    figures[-1] |= {"target": "> 0", "met": summary(rows)["joined less none, paired"]["low"] > 0}
    record(
        "vision/thin_lines",
        title="Thin lines in noise, 32 x 32 pixels, by a U-Net with and without what is passed across",
        figures=figures,
        metrics=rows,
        training={"width": 8, "levels": 4, "epochs": EPOCHS, "batch_size": 8, "lr": 5e-3},
    )


if __name__ == "__main__":
    main()
