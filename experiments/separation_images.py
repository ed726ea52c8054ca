"""Perceptrons on MNIST and Fashion-MNIST over three orders of the examples; can a plane tell shirts?

Beside the Perceptron of the Fashion-MNIST benchmark and LeCun's linear classifier. The official test parts.
"""

import statistics
import tempfile
from pathlib import Path

import torch
from scipy.stats import t as student

from benchmarks.record import record
from margin import Training, train
from margin.classic.perceptron.averaged_perceptron import AveragedPerceptron, averaged_mistake_rule
from margin.classic.perceptron.separation import homogeneous, separate
from margin.core.types import Batch
from margin.data.open import open_data
from margin.engine.loop import State

SEEDS, EPOCHS, BATCH, AVERAGED_EPOCHS = range(3), 5, 5000, 2
PUBLISHED = {
    "mnist": "0.880 (linear classifier; LeCun, Bottou, Bengio and Haffner 1998, III.C)",
    "fashion-mnist": "0.782 (perceptron; Xiao, Rasul and Vollgraf 2017, the repository's benchmark)",
}


def multiclass(source: str, update: str, seed: int) -> float:
    """Test accuracy of Kesler's rule after five passes, each in an order of the seed."""
    with tempfile.TemporaryDirectory() as directory:
        training = Training(epochs=EPOCHS, batch_size=BATCH, seed=seed, threads=1)
        run = train(
            "multiclass_perceptron",
            open_data(source, {"val": 0.0}),
            training=training,
            step={"update": update},
            out=Path(directory) / "run",
        )
        return run.metrics["test_accuracy"]


def one_against_rest(source: str, seed: int) -> float:
    """Test accuracy of ten averaged perceptrons, of one class against the rest each: the best wins."""
    data = open_data(source, {"val": 0.0})
    parts = {name: (rows(data, name), data.splits[name].targets) for name in ("train", "test")}
    x, labels = parts["train"]
    step, scores = averaged_mistake_rule(), []
    for k in range(10):
        model = AveragedPerceptron(x.shape[1], 2)
        state = State({"model": model})
        for epoch in range(AVERAGED_EPOCHS):
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(100 * seed + epoch))
            step(state, Batch((x[order],), (labels[order] == k).long()))
        with torch.no_grad():
            scores.append(model(parts["test"][0]))
    return float((torch.stack(scores, 1).argmax(1) == parts["test"][1]).double().mean())


def rows(data: object, part: str) -> torch.Tensor:
    """The images of a part as rows, standardized as the training does."""
    return data.preprocess(data.splits[part].inputs[0].float()).flatten(1)


def figure(what: str, values: list[float], published: str) -> dict[str, object]:
    mean = statistics.mean(values)
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    print(what, values, flush=True)
    return {
        "what": what,
        "value": mean,
        "unit": "1",
        "interval": [mean - half, mean + half],
        "published": published,
    }


def shirts() -> dict[str, object]:
    """Whether a plane separates the shirts (class 6) of Fashion-MNIST from the rest, and the proof."""
    data = open_data("fashion-mnist", {"val": 0.0})
    x, labels = rows(data, "train").double(), data.splits["train"].targets
    found = separate(homogeneous(x, torch.where(labels == 6, 1.0, -1.0).double()))
    return {
        "what": f"fashion-mnist, shirts against the rest of {len(x):,}: no margin exceeds",
        "value": found.bound,
        "unit": "standard deviations",
        "target": "separable or proved not to be",
        "met": found.separable or found.inseparable,
        "proof": found.evidence(),
    }


def main() -> None:
    figures: list[dict[str, object]] = []
    for source, published in PUBLISHED.items():
        for update in ("highest", "uniform"):
            values = [multiclass(source, update, seed) for seed in SEEDS]
            what = f"{source}, multiclass perceptron ({update}), 5 passes: test accuracy"
            figures.append(figure(what, values, published))
        values = [one_against_rest(source, seed) for seed in SEEDS]
        what = f"{source}, averaged perceptrons, one against the rest, 2 passes: test accuracy"
        figures.append(figure(what, values, published))
    figures.append(shirts())
    record(
        "classic/perceptron_images",
        title="Perceptrons on MNIST and Fashion-MNIST, three orders; mean and 95 % t interval",
        figures=figures,
        packages=("scikit-learn",),
        seeds=list(SEEDS),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
