"""GPT on the characters of tiny Shakespeare at nanoGPT's configuration for a CPU (Karpathy 2022, README).

4 blocks, 4 heads, width 128, blocks of 64, 12 of them a step, 2,000 steps, no dropout, AdamW of weight decay
0.1 and betas 0.9, 0.99, a learning rate of 1e-3 after 100 steps, falling as a cosine. As there the last tenth
of the text is held out; nothing is chosen by it, and the weights are those of the last step. Every one of its
characters is asked for once, in blocks of 64 one behind another (nanoGPT averages 20 random batches). Run
again with the same --out, a training that was cut off goes on.
"""

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path

from benchmarks.record import record
from margin import Training, resume, train
from margin.data.formats.text.sources import read_text
from margin.data.splits import Split
from margin.runs.sampling import sample

STEPS, PUBLISHED = 2000, 1.88
TRAINING = Training(
    max_steps=STEPS,
    batch_size=12,
    lr=1e-3,
    optimizer_options={"betas": (0.9, 0.99), "weight_decay": 0.1},
    schedule="cosine",
    warmup=100,
    clip=1.0,
    patience=0,
    evaluate_every=500,
    checkpoint_every=500,
    threads=1,
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs/text_shakespeare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    text = Path(os.environ["MARGIN_DATA"]) / "tinyshakespeare" / "input.txt"
    data, out = read_text(text, time=64, split=Split(test=0.1, val=0.0)), Path(arguments.out)
    if (out / "run.yaml").exists():
        run = resume(out, data=data)
    else:
        run = train("text/gpt", data, {}, replace(TRAINING, seed=arguments.seed, lr=arguments.lr), out=out)
    loss = run.metrics["test_loss"]
    record(
        "text/shakespeare",
        title="GPT of 4 blocks, 4 heads and width 128 on the characters of tiny Shakespeare, 2,000 steps of "
        "12 blocks of 64, one thread",
        figures=[
            {
                "what": "cross-entropy of the last tenth of the text",
                "value": round(loss, 4),
                "unit": "nats a character",
                "target": f"<= {PUBLISHED}",
                "source": "nanoGPT README, the configuration for a CPU",
                "met": loss <= PUBLISHED,
            },
            {"what": "the same", "value": round(loss / math.log(2), 4), "unit": "bits a character"},
        ],
        seed=arguments.seed,
        seconds=round(sum(row["seconds"] for row in run.history)),
        metrics=run.metrics,
        sample=sample(run, 1, prefix="ROMEO:", options={"length": 300, "beyond": "slide"}).texts[0],
    )


if __name__ == "__main__":
    main()
