"""What ``margin audit --minutes`` expects each question to take, beside what it took.

Three models at one thread: an MLP of digits, a convolutional network of the same images, a GRU that reads
their rows. Every default claim that applies is asked in the order of the plan, which learns as in an audit.
The plan is made to be right within a factor of 3.
"""

import statistics
import time

import torch
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.record import record
from margin.auditing.asking.budget import Budget
from margin.auditing.subject.subjects import subject_of
from margin.core import catalog
from margin.core.catalog import resolve
from margin.core.findings import NotAsked, Subject

FACTOR = 3.0


class LastState(nn.Module):
    """The last state of a GRU over the rows of an image, read by a linear map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(8, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x[:, 0])[0][:, -1])


def subjects() -> dict[str, Subject]:
    x, y = load_digits(return_X_y=True)
    images = torch.tensor(x).float().reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(y)
    torch.manual_seed(0)
    models = {
        "mlp": nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        ),
        "convnet": nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
        ),
        "gru": LastState(32),
    }  # fmt: skip
    made = {}
    for name, model in models.items():
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for index in torch.arange(1200).repeat(5).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()
        given = (images[1200:], labels[1200:]), (images[:1200], labels[:1200])
        made[name] = subject_of(model.eval(), given[0], train=given[1], domain=(0.0, 1.0))
    return made


def rows_of(name: str, subject: Subject) -> list[dict[str, object]]:
    """The expected and the real seconds of every default claim that applies, the cheapest first."""
    claims = [c for c in catalog.claims().values() if not c.by_name and not catalog_refusal(c, subject)]
    plan, rows = Budget(subject, minutes=60), []
    for claim in plan.order(claims):
        expected = plan.seconds(claim)
        start = time.perf_counter()
        try:
            resolve(claim.ask)(subject)
        except NotAsked:
            continue
        took = time.perf_counter() - start
        plan.took(claim, took)
        rows.append({"model": name, "claim": claim.name, "expected": expected, "took": took})
    return rows


def catalog_refusal(claim: catalog.Claim, subject: Subject) -> bool:
    return not all(resolve(need.met)(subject) for need in claim.needs)


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for name, subject in subjects().items() for row in rows_of(name, subject)]
    # both are at least what any claim takes: 10 ms beside 200 ms does not spoil a plan of minutes
    ratios = [max(r["took"], 0.2) / max(r["expected"], 0.2) for r in rows]
    off = [max(ratio, 1 / ratio) for ratio in ratios]
    within = sum(factor <= FACTOR for factor in off) / len(off)
    total = sum(r["took"] for r in rows) / sum(r["expected"] for r in rows)
    worst = max(zip(off, rows, strict=True), key=lambda pair: pair[0])
    record(
        "auditing/plan",
        title=f"Seconds of {len(rows)} answers on 3 models over what the plan expected of each",
        figures=[
            {"what": "answers within a factor of 3", "value": within, "unit": "1", "target": ">= 0.9",
             "met": within >= 0.9},
            {"what": "all answers together", "value": total, "unit": "took / expected",
             "target": "1/3 to 3", "met": 1 / FACTOR <= total <= FACTOR},
            {"what": "median factor", "value": statistics.median(off), "unit": "1"},
            {"what": f"largest factor ({worst[1]['claim']} of the {worst[1]['model']})", "value": worst[0],
             "unit": "1"},
        ],
        rows=rows,
    )  # fmt: skip


if __name__ == "__main__":
    main()
