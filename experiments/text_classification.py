"""Questions by what they ask for (TREC, Li and Roth 2002) and film reviews (MR, Pang and Lee 2005), as texts.

TREC has an official test part of 500; MR has none, and is cut in ten folds of which the first --folds are
tested on. The text CNN begins with drawn vectors, and with those of GloVe where --glove names a file (word
vectors as text, or .npy with its words in the .txt beside). Beside it stand a bag of words, an LSTM, and
scikit-learn's logistic regression of TF-IDF. What a fold gave is kept in --kept, and not trained again.
"""

import argparse
import gzip
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.record import record
from margin import Training, train
from margin.data.formats.text.texts import from_texts
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.splits import Split

TOKENS = Tokenization(min_count=1)
MODELS = {
    "text CNN": ("text_cnn", {}, {}),
    "text CNN, GloVe": ("text_cnn", {"embedding": 50}, {"init_from": "glove"}),
    "bag of words": ("bag_of_words", {}, {"lr": 0.01}),
    "LSTM": ("lstm", {"dropout": 0.3}, {"lr": 0.002}),
}
PUBLISHED = {"trec": "Kim 2014, Table 2: 93.6 (non-static, word2vec)", "mr": "Kim 2014, Table 2: 81.5"}


def lines_of(name: str) -> tuple[list[str], np.ndarray]:
    """The texts and labels of a file of "label tokens" lines, in latin-1."""
    path = Path(os.environ["MARGIN_DATA"]) / "sentclass" / name
    rows = [
        line.split(" ", 1)
        for line in gzip.decompress(path.read_bytes()).decode("latin-1").split("\n")
        if line
    ]
    return [text for _, text in rows], np.array([int(label) for label, _ in rows])


def parts_of(name: str, fold: int) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """Training and test part; of MR one of ten folds, the same for every model."""
    if name == "trec":
        return *lines_of("TREC.train.all.gz"), *lines_of("TREC.test.all.gz")
    texts, labels = lines_of("rt-polarity.all.gz")
    of = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).numpy() % 10
    train, test = np.flatnonzero(of != fold), np.flatnonzero(of == fold)
    return [texts[i] for i in train], labels[train], [texts[i] for i in test], labels[test]


def accuracy(name: str, model: str, fold: int, glove: str, epochs: int) -> float:
    """The accuracy on the test part after a training that ends by its validation part."""
    x, y, test_x, test_y = parts_of(name, fold)
    if model == "TF-IDF, logistic regression":
        peer = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(x, y)
        return float(peer.score(test_x, test_y))
    entry, options, own = MODELS[model]
    data = from_texts(
        x, y, name=name, tokens=TOKENS, split=Split(val=0.1, seed=fold), test_texts=(test_x, test_y)
    )
    given = {"init_from": glove} if own.get("init_from") else own
    training = Training(epochs=epochs, batch_size=50, patience=3, seed=fold, threads=1).over(given)
    with tempfile.TemporaryDirectory() as out:
        run = train(entry, data, options, training, out=Path(out) / "run")
        return float(run.metrics["test_accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=("trec", "mr"), default="trec")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--glove", default="")
    parser.add_argument("--kept", type=Path, default=Path("build/text_classification.json"))
    arguments = parser.parse_args()
    arguments.kept.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(arguments.kept.read_text()) if arguments.kept.exists() else {}
    figures, tested = [], len(parts_of(arguments.data, 0)[3])
    for model in ("TF-IDF, logistic regression", *MODELS):
        if "GloVe" in model and not arguments.glove:
            continue
        alone = model.startswith("TF-IDF") and arguments.data == "trec"
        found = []
        for fold in range(1 if alone else arguments.folds):
            case = f"{arguments.data}, {model}, fold {fold}, {arguments.epochs} epochs"
            if case not in kept:
                kept[case] = 100 * accuracy(arguments.data, model, fold, arguments.glove, arguments.epochs)
                arguments.kept.write_text(json.dumps(kept, indent=1))
            found.append(kept[case])
        mean = float(np.mean(found))
        if len(found) > 1:  # over the runs; training parts of folds overlap, which this leaves out
            half = student.ppf(0.975, len(found) - 1) * float(np.std(found, ddof=1)) / len(found) ** 0.5
        else:  # over the texts of the test part
            half = 1.96 * (mean * (100 - mean) / tested) ** 0.5
        figures.append(
            {
                "what": f"{arguments.data.upper()}: test accuracy, {model}",
                "value": round(mean, 2),
                "unit": "%",
                "interval": [round(mean - half, 2), round(mean + half, 2)],
                **({"source": PUBLISHED[arguments.data]} if model.startswith("text CNN") else {}),
                "runs": [round(value, 2) for value in found],
            }
        )
        print(figures[-1], flush=True)
    unit = "seed(s)" if arguments.data == "trec" else "of ten folds"
    record(
        f"text/{arguments.data}",
        title=f"{arguments.data.upper()} by text CNN, bag of words, LSTM; {arguments.folds} {unit}",
        figures=figures,
        packages=("scikit-learn",),
        budget=f"at most {arguments.epochs} epochs each, ended by the validation part",
    )


if __name__ == "__main__":
    main()
