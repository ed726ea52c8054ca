"""German to English captions (Multi30k, Elliott et al. 2016) by additive attention, or by a transformer.

``--model transformer`` trains as many epochs on the same batches; its sizes are of about as many parameters.

The official parts: 29,000 pairs for training, 1,014 for validation, test_2016_flickr for the figure. Words
and marks are tokens, in small letters, those seen twice in training known. How a translation is decoded is
chosen by BLEU on the validation part; the test part is decoded once, that way and greedily. BLEU is
sacrebleu's, with its own tokenizer 13a, small letters, against the untouched English sentences. Run again
with the same --out, a training that was cut off goes on.
"""

import argparse
import gzip
import os
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Training, load, resume, train
from margin.data.examples import Data, InOrder
from margin.data.formats.text.pairs import decode
from margin.data.open import open_data
from margin.nn.preprocessed import core_of
from margin.nn.seq2seq import Seq2Seq

MODELS = {
    "attention": (
        "sequence/attention_seq2seq",
        {"embedding": 256, "hidden": 256, "attention": 256, "dropout": 0.4},
        "sequence/multi30k",
    ),
    "transformer": (
        "text/transformer",
        {"width": 256, "depth": 3, "heads": 4, "hidden": 512, "dropout": 0.3},
        "text/multi30k",
    ),
}
TRAINING = Training(
    epochs=12, batch_size=64, lr=1e-3, schedule="cosine", warmup=200, clip=1.0, patience=0, seed=0, threads=1
)
WAYS = {
    "greedy": {"width": 1},
    "beam 5": {"width": 5},
    "beam 5, alpha .6": {"width": 5, "length_normalization": 0.6},
    "beam 5, alpha 1": {"width": 5, "length_normalization": 1.0},
}
LONGEST = 60
BOOTSTRAPS = 1000


def references(part: str) -> list[str]:
    path = Path(os.environ["MARGIN_DATA"]) / "multi30k" / f"{part}.en.gz"
    return gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n")


def translations(model: Seq2Seq, data: Data, part: str, way: dict) -> tuple[list[str], int]:
    """The sentences, and how many came to no end."""
    found, endless = [], 0
    for batch in InOrder(data.splits[part], 128):
        decoded = model.translate(*batch.inputs[:2], longest=LONGEST, **way)
        endless += int((~decoded.ended).sum())
        found += [decode(row, data.encoding) for row in decoded.tokens]
    return found, endless


def bleu(found: list[str], wanted: list[str]) -> tuple[float, tuple[float, float], str]:
    """BLEU with its 95% bootstrap interval over sentences (Koehn 2004), and sacrebleu's signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(lowercase=True, force=True)
    score = metric.corpus_score(found, [wanted])
    statistics = metric._extract_corpus_statistics(found, [wanted])
    rows = torch.tensor(statistics, dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    draws = sorted(
        metric._compute_score_from_stats(
            [int(n) for n in rows[torch.randint(len(rows), (len(rows),), generator=g)].sum(0)]
        ).score
        for _ in range(BOOTSTRAPS)
    )
    low, high = draws[int(0.025 * BOOTSTRAPS)], draws[int(0.975 * BOOTSTRAPS)]
    return score.score, (low, high), str(metric.get_signature())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="attention")
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    entry, options, name = MODELS[arguments.model]
    data, out = open_data("multi30k", {}), Path(arguments.out or f"runs/{name}")
    run = (
        resume(out, data=data)
        if (out / "run.yaml").exists()
        else train(entry, data, options, TRAINING, out=out)
    )
    seconds = sum(row["seconds"] for row in run.history)
    model = core_of(load(run)).eval()
    on_val = {
        name: bleu(translations(model, data, "val", way)[0], references("val"))[0]
        for name, way in WAYS.items()
    }
    chosen = max(on_val, key=on_val.__getitem__)
    figures = []
    for way in dict.fromkeys((chosen, "greedy")):
        found, endless = translations(model, data, "test", WAYS[way])
        score, interval, signature = bleu(found, references("test_2016_flickr"))
        figures.append(
            {
                "what": f"BLEU on test_2016_flickr, {way}",
                "value": round(score, 2),
                "unit": "BLEU",
                "interval": [round(end, 2) for end in interval],
                "source": "no target: the figure after this budget",
                "endless": endless,
                "unknown": sum(sentence.count("<unk>") for sentence in found),
            }
        )
    record(
        name,
        title=f"Multi30k German to English, {entry}, one training of about an hour on one core",
        figures=figures,
        packages=("sacrebleu",),
        seed=0,
        budget=f"{TRAINING.epochs} epochs, {seconds / 60:.0f} minutes of the clock at one thread",
        chosen_on_validation=on_val,
        signature=signature,
        parameters=sum(p.numel() for p in model.parameters()),
        vocabularies=[data.spec["source_vocab_size"], data.spec["vocab_size"]],
        metrics=run.metrics,
        examples=[
            {"found": found[i], "wanted": references("test_2016_flickr")[i]} for i in (0, 1, 2, 500, 999)
        ],
    )


if __name__ == "__main__":
    main()
