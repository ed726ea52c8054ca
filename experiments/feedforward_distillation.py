"""A small student on few labels of Fashion-MNIST, alone and distilled from a wide teacher, five paired seeds.

The teacher is trained once on 20,000 labeled images. Each student is trained on 2,000 of them, from the same
weights and in the same order, on the labels alone or on the teacher's answers too.
"""

import time

import torch
from torch import Generator

from benchmarks.record import record
from margin.core.tasks import CLASSES
from margin.data.examples import Arrays, Shuffled
from margin.data.open import open_data
from margin.engine.evaluation import evaluate
from margin.engine.loop import GradientUpdate, State, descent, fit, risk, scheduled
from margin.engine.methods.distillation import distillation
from margin.feedforward.mlp.model import MLP
from margin.nn.preprocessed import Preprocessed
from margin.optim.schedules import schedule_of
from margin.runs.seed_interval import summary

SEEDS = range(5)
LABELS, TEACHER_LABELS = 2000, 20000
OBJECTIVE = risk(CLASSES)


def model(data, hidden, seed, dropout=0.0):
    torch.manual_seed(seed)
    core = MLP(data.spec["in_features"], data.spec["num_classes"], hidden=hidden, dropout=dropout)
    return Preprocessed(data.preprocess, core).float()


def trained(made, examples, step, *, steps, lr, seed):
    batches = Shuffled(examples, 64, seed=seed)
    state = State({"model": made}, {"": torch.optim.AdamW(made.model.parameters(), lr=lr)}, seed=seed)
    fit(state, batches, scheduled(step, schedule_of("cosine", total=steps, warmup=0)), max_steps=steps)
    return made


def accuracy(made, examples):
    batches = [examples.take(i, Generator()) for i in torch.arange(len(examples)).split(1000)]
    return evaluate(made, batches, CLASSES, OBJECTIVE)["accuracy"]


def main() -> None:
    torch.set_num_threads(1)
    data = open_data("fashion-mnist", {"val": 0.05})
    train, test = data.splits["train"], data.splits["test"]
    order = torch.randperm(len(train), generator=Generator().manual_seed(0))
    many = Arrays(*train.take(order[:TEACHER_LABELS], Generator())[:2])
    start = time.perf_counter()
    teacher = model(data, (512, 512), 0, dropout=0.2)
    trained(teacher, many, descent(OBJECTIVE, GradientUpdate()), steps=3000, lr=1e-3, seed=0)
    of_teacher, rows = accuracy(teacher, test), []
    print(f"teacher {of_teacher:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
    for seed in SEEDS:
        subset = order[:TEACHER_LABELS][
            torch.randperm(TEACHER_LABELS, generator=Generator().manual_seed(seed + 1))[:LABELS]
        ]
        few = Arrays(*train.take(subset, Generator())[:2])
        steps = {
            "alone": descent(OBJECTIVE, GradientUpdate()),
            "distilled": distillation(
                OBJECTIVE, GradientUpdate(), CLASSES, teacher, temperature=4.0, share=0.9
            ),
        }
        row = {
            name: accuracy(trained(model(data, (32,), seed), few, step, steps=1500, lr=2e-3, seed=seed), test)
            for name, step in steps.items()
        }
        rows.append({**row, "gain": row["distilled"] - row["alone"]})
        print(rows[-1], flush=True)
    found = summary(rows)
    record(
        "feedforward/distillation",
        title="MLP of 32 units on 2,000 labels of Fashion-MNIST, alone and distilled from an MLP of 512-512 "
        "units, official test part, 5 paired seeds",
        figures=[
            {
                "what": "gain in test accuracy of the distilled student, paired",
                "value": found["gain"]["mean"],
                "unit": "1",
                "interval": [found["gain"]["low"], found["gain"]["high"]],
                "target": "interval above 0",
                "met": found["gain"]["low"] > 0,
            },
            *(
                {
                    "what": f"test accuracy, {name}",
                    "value": found[name]["mean"],
                    "unit": "1",
                    "interval": [found[name]["low"], found[name]["high"]],
                }
                for name in ("alone", "distilled")
            ),
            {"what": "test accuracy, teacher", "value": of_teacher, "unit": "1"},
            {"what": "seconds in all", "value": time.perf_counter() - start, "unit": "s"},
        ],
        seeds=list(SEEDS),
        metrics=rows,
    )


if __name__ == "__main__":
    main()
