"""ELMo on questions of TREC (Li and Roth 2002) of few labels: language models first, or as drawn.

Both language models read the 5,452 questions without their classes; then a mixture of layers and an affine
map learn the six classes from 500 of them, the body as it was drawn or as it came from the language models.
The words of the language models are those of all questions, of the classifier those of the 500: what goes
over is the net on their letters. Accuracy on the official 500 test questions.
"""

import argparse
import gzip
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Training, train
from margin.data.data_home import folder_of
from margin.data.examples import Data
from margin.data.formats.text.sources import from_text
from margin.data.formats.text.texts import from_texts
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.splits import Split

LABELED = 500
BODY = {"width": 64, "filters": 16, "dropout": 0.2}
LANGUAGE = Training(epochs=6, batch_size=32, lr=3e-3, schedule="cosine", clip=1.0, threads=1, patience=0)
CLASSES = Training(epochs=12, batch_size=32, lr=2e-3, clip=1.0, threads=1, patience=0)
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t of a 95 % interval, by the number of values."""


def questions(part: str) -> tuple[list[str], list[int]]:
    """The questions of a part and their classes."""
    path = folder_of("sentclass") / f"TREC.{part}.all.gz"
    rows = gzip.decompress(path.read_bytes()).decode("latin-1").strip("\n").split("\n")
    return [row.partition(" ")[2] for row in rows], [int(row.partition(" ")[0]) for row in rows]


def labeled(seed: int) -> Data:
    """Some labeled questions, a fifth of them to choose the weights, and the official test part."""
    x, y = questions("train")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:LABELED].tolist()
    rule = Tokenization(min_count=1)
    some = [x[k] for k in order], torch.tensor([y[k] for k in order])
    test = questions("test")
    given = (test[0], torch.tensor(test[1]))
    return from_texts(*some, name="TREC", tokens=rule, split=Split(val=0.2, seed=seed), test_texts=given)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    text = "\n".join(questions("train")[0])
    data = from_text(
        text, Split(test=0.0, val=0.05), "TREC", Tokenization(min_count=2), time=32, unknown="token"
    )
    found: dict[str, list[float]] = {"as drawn": [], "language models first": []}
    with tempfile.TemporaryDirectory() as directory:
        first = Path(directory) / "language"
        language = train("text/elmo:tokens", data, BODY, replace(LANGUAGE, seed=0), out=first)
        print(language.metrics, flush=True)
        for seed in range(seeds):
            some = labeled(seed)
            for name, begin in (("as drawn", None), ("language models first", str(first))):
                training = replace(CLASSES, seed=seed, init_from=begin)
                run = train("text/elmo", some, BODY, training, out=Path(directory) / f"{name} {seed}")
                found[name].append(run.metrics["test_accuracy"])
            print(found, flush=True)
        nats = language.metrics["val_loss"]
    gaps = torch.tensor(found["language models first"]) - torch.tensor(found["as drawn"])
    mean, half = float(gaps.mean()), T_95[seeds] * float(gaps.std()) / seeds**0.5
    figures: list[dict[str, object]] = [
        {"what": f"accuracy, {name}, mean of {seeds} seeds", "value": sum(v) / seeds, "unit": "1"}
        for name, v in found.items()
    ]
    figures.append(
        {
            "what": "accuracy by the language models' weights, less that as drawn",
            "value": mean,
            "unit": "1",
            "interval": [mean - half, mean + half],
            "target": "> 0",
            "met": mean - half > 0,
        }
    )
    figures.append(
        {"what": "loss of the two language models, held-out questions", "value": nats, "unit": "nats a word"}
    )
    record(
        "text/elmo",
        title=f"ELMo on {LABELED} labeled questions of TREC: what its language models are worth",
        figures=figures,
        seeds=seeds,
        accuracies=found,
    )


if __name__ == "__main__":
    main()
