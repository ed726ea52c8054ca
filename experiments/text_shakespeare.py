"""GPT on the characters of tiny Shakespeare at nanoGPT's configuration for a CPU (Karpathy 2022, README).

4 blocks, 4 heads, width 128, blocks of 64, 12 of them a step, 2,000 steps, no dropout, AdamW of weight decay
0.1 and betas 0.9, 0.99, a learning rate that falls as a cosine after 100 steps. nanoGPT's is 1e-3; it or 3e-3
is chosen by the training loss of the last 500 steps. As there the last tenth of the text is held out; nothing
is chosen by it, and the weights are those of the last step. Every one of its characters is asked for once, in
blocks of 64 one behind another (nanoGPT averages 20 random batches). Run again with the same --out, a
training that was cut off goes on.
"""

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path

from benchmarks.record import record
from margin import Run, Training, resume, train
from margin.data.examples import Data
from margin.data.formats.text.sources import read_text
from margin.data.splits import Split
from margin.runs.sampling import sample

STEPS, PUBLISHED, RATES = 2000, 1.88, (1e-3, 3e-3)
TRAINING = Training(
    max_steps=STEPS,
    batch_size=12,
    optimizer_options={"betas": (0.9, 0.99), "weight_decay": 0.1},
    schedule="cosine",
    warmup=100,
    clip=1.0,
    patience=0,
    evaluate_every=500,
    checkpoint_every=500,
    threads=1,
)


def trained(lr: float, out: Path, data: Data) -> Run:
    if (out / "run.yaml").exists():
        return resume(out, data=data)
    return train("text/gpt", data, {}, replace(TRAINING, lr=lr), out=out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs/text_shakespeare")
    out = Path(parser.parse_args().out)
    text = Path(os.environ["MARGIN_DATA"]) / "tinyshakespeare" / "input.txt"
    data = read_text(text, time=64, split=Split(test=0.1, val=0.0))
    runs = {lr: trained(lr, out / f"{lr:g}", data) for lr in RATES}
    chosen = min(runs, key=lambda lr: runs[lr].history[-1]["train_loss"])
    run = runs[chosen]
    loss = run.metrics["test_loss"]
    record(
        "text/shakespeare",
        title="GPT of 4 blocks, 4 heads and width 128 on the characters of tiny Shakespeare, 2,000 steps of "
        "12 blocks of 64, one thread",
        figures=[
            {
                "what": f"cross-entropy of the last tenth of the text, learning rate {chosen:g}",
                "value": round(loss, 4),
                "unit": "nats a character",
                "target": f"<= {PUBLISHED}",
                "source": "nanoGPT README, the configuration for a CPU",
                "met": loss <= PUBLISHED,
            },
            {"what": "the same", "value": round(loss / math.log(2), 4), "unit": "bits a character"},
            *(
                {
                    "what": f"the same, learning rate {lr:g}",
                    "value": round(other.metrics["test_loss"], 4),
                    "unit": "nats a character",
                }
                for lr, other in runs.items()
                if lr != chosen
            ),
        ],
        seed=0,
        training_loss={f"{lr:g}": one.history[-1]["train_loss"] for lr, one in runs.items()},
        metrics=run.metrics,
        sample=sample(run, 1, prefix="ROMEO:", options={"length": 300, "beyond": "slide"}).texts[0],
    )


if __name__ == "__main__":
    main()
