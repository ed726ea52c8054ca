"""Skip-gram beside gensim's: words a second on one thread, and what the vectors are worth after five passes.

Both read the same lines of the same words, with vectors of 100 numbers, windows of 5, 5 negatives, words
seen 5 times and more, occurrences left out above a share of 1e-3. Words a second are words of the text,
left out or not; a time is the processor's own, and the two take turns.

    python -m benchmarks.skipgram --peer PYTHON_WITH_GENSIM
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.record import record
from margin import Training
from margin.data.data_home import folder_of
from margin.data.formats.text.corpus import read_corpus
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.formats.text.vocabulary import tokens_of
from margin.data.splits import Split
from margin.runs.training import finish, prepare
from margin.text.embeddings.claims import fisher_interval, similarity
from margin.text.embeddings.vectors import WordVectors, read_pairs, read_vectors

RATES = {"gensim": 0.025, "gensim at our rate of .05": 0.05}
"""Its own first learning rate, and ours."""

SETS = ("WordSim-353", "SimLex-999", "MEN-3000")
FILES = ("EN-WS-353-ALL.txt", "EN-SIMLEX-999.txt", "EN-MEN-TR-3k.txt")

PEER = """
import json, sys, time
from gensim.models import Word2Vec
lines, out, seed, epochs, rate = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])
lines = [line.split() for line in open(lines, encoding="utf-8")]
model = Word2Vec(vector_size=100, window=5, min_count=5, sg=1, negative=5, sample=1e-3, workers=1,
                 seed=seed, alpha=rate)
model.build_vocab(lines)
begin = time.process_time()
model.train(lines, total_examples=model.corpus_count, epochs=epochs)
seconds = time.process_time() - begin
model.wv.save_word2vec_format(out, binary=True)
import gensim
print(json.dumps({"seconds": seconds, "words": sum(map(len, lines)), "version": gensim.__version__}))
"""


def of_peer(python: str, lines: Path, seed: int, epochs: int, rate: float) -> tuple[float, WordVectors, str]:
    """Seconds a pass and vectors of gensim."""
    out = lines.with_suffix(".bin")
    call = [python, "-c", PEER, str(lines), str(out), str(seed), str(epochs), str(rate)]
    told = subprocess.run(call, capture_output=True, text=True, check=True)
    said = json.loads(told.stdout.splitlines()[-1])
    return said["seconds"] / epochs, read_vectors(out), said["version"]


def ours(data: Any, seed: int, epochs: int) -> tuple[float, WordVectors]:
    """Seconds a pass and vectors of ours, by the training that the command line runs."""
    arguments: dict[str, Any] = {"options": {}, "step": {}, "rule": ""}
    with tempfile.TemporaryDirectory() as directory:
        training = Training(epochs=epochs, seed=seed, threads=1)
        job = prepare("text/skipgram", data, arguments, training, Path(directory) / "run")
        begin = time.process_time()
        finish(job)
        seconds = time.process_time() - begin
        return seconds / epochs, WordVectors.of(job.state.core, data.encoding["vocabulary"])


def ranks(vectors: WordVectors) -> list[float]:
    folder = folder_of("wordemb") / "wordsim"
    found = [
        similarity(vectors, read_pairs(folder / file), name) for name, file in zip(SETS, FILES, strict=True)
    ]
    return [finding.value.item() for finding in found]


def figures_of(
    times: dict[str, list[float]], worth: dict[str, list[list[float]]], words: int, known: Sequence[int]
) -> list[dict[str, object]]:
    speed = {name: [words / seconds for seconds in found] for name, found in times.items()}
    shares = sorted(a / b for a in speed["ours"] for b in speed["gensim"])
    value = median(speed["ours"]) / median(speed["gensim"])
    rows: list[dict[str, object]] = [
        {
            "what": "words a second / gensim's, one thread",
            "value": value,
            "unit": "ratio",
            "interval": [shares[0], shares[-1]],
            "target": ">= 1",
            "met": value >= 1,
        },
        *(
            {"what": f"words a second, {name}", "value": median(v), "unit": "1/s"}
            for name, v in speed.items()
        ),
    ]
    for k, name in enumerate(SETS):
        mean = {who: sum(row[k] for row in found) / len(found) for who, found in worth.items()}
        for who, rho in mean.items():
            low, high = fisher_interval(rho, known[k])
            row = {
                "what": f"{name}, rank correlation, {who}",
                "value": rho,
                "unit": "1",
                "interval": [low, high],
            }
            if who == "ours" and k < 2:
                row |= {"target": ">= gensim's less .02", "met": rho >= mean["gensim"] - 0.02}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, help="a Python that has gensim")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--file", default="books", help="books or open")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpus = folder_of("wordemb") / "corpus" / f"{arguments.file}.txt.gz"
    rule = Tokenization(min_count=5)
    data = read_corpus(corpus, tokens=rule, split=Split(test=0.0, val=0.0))
    rows = [tokens_of(line, "words", "lower") for line in text_in(corpus).split("\n")]
    times: dict[str, list[float]] = {"ours": [], "gensim": []}
    worth: dict[str, list[list[float]]] = {"ours": [], **{who: [] for who in RATES}}
    with tempfile.TemporaryDirectory() as directory:
        lines = Path(directory) / "lines"
        lines.write_text("\n".join(" ".join(row) for row in rows if row), encoding="utf-8")
        for seed in range(1, arguments.rounds + 1):
            for who, rate in RATES.items():
                seconds, vectors, version = of_peer(arguments.peer, lines, seed, arguments.epochs, rate)
                times["gensim"].append(seconds)
                worth[who].append(ranks(vectors))
            seconds, vectors = ours(data, seed, arguments.epochs)
            times["ours"].append(seconds)
            worth["ours"].append(ranks(vectors))
            print(times, worth, flush=True)
    folder = folder_of("wordemb") / "wordsim"
    words = sum(map(len, rows))
    known = [len(vectors.similarities(read_pairs(folder / file))) for file in FILES]
    record(
        "text/skipgram",
        title=f"Skip-gram with negative sampling beside gensim's, {words:,} words of {arguments.file}, "
        f"{arguments.epochs} passes, one thread",
        figures=figures_of(times, worth, words, known),
        rounds=arguments.rounds,
        epochs=arguments.epochs,
        threads=1,
        gensim=version,
        pairs_known=dict(zip(SETS, known, strict=True)),
        seconds_a_pass=times,
    )


if __name__ == "__main__":
    main()
