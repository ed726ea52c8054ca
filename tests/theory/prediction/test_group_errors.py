"""Errors over groups: rows of one patient are one draw."""

import numpy as np
import torch
from torch import Generator, Tensor

from margin.auditing.subject.trained import subject_of_run
from margin.core.findings import Subject
from margin.core.options import Training
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.data.examples import Arrays, InOrder
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.runs.verbs import train
from margin.theory.prediction.held_out import (
    held_out_answers,
    held_out_terms,
    independent_draws,
    weighted_mean,
)


class First(torch.nn.Module):
    """The first feature."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def measure(model: torch.nn.Module, batch: Batch, generator: Generator) -> Tensor:
    return model(*batch.inputs)


def test_the_error_of_a_mean_is_over_groups() -> None:
    """Against the ratio estimate written out: residual sums of each group."""
    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(12, (100,), generator=generator).unique(return_inverse=True)[1]
    x = torch.randn(12, generator=generator)[groups][:, None] + 0.1 * torch.randn(100, 1, generator=generator)
    part = InOrder(Arrays((x,), torch.zeros(100), groups=groups), 7)
    found = weighted_mean(held_out_terms(First(), part, measure))
    values, codes = x[:, 0].double().numpy(), groups.numpy()
    sums = np.array([(values[codes == g] - values.mean()).sum() for g in range(12)])
    assert np.isclose(float(found.stderr), np.sqrt(12 / 11 * (sums**2).sum()) / 100, rtol=1e-6)
    alone = weighted_mean(held_out_terms(First(), InOrder(Arrays((x,)), 7), measure))
    assert float(found.stderr) > 2 * float(alone.stderr)
    subject = Subject(model=First(), test=part, task=VALUES, objective=risk(VALUES), groups="patient")
    assert held_out_answers(subject).example.tolist() == codes.tolist()
    assert "groups of 'patient'" in independent_draws(subject).text


def test_an_audit_of_a_run_on_groups_knows_them(tmp_path) -> None:
    rows = "".join(f"p{k % 20},{k % 7},{'xy'[k % 2]}\n" for k in range(200))
    (tmp_path / "d.csv").write_text("patient,a,y\n" + rows)
    data = open_data(tmp_path / "d.csv", {"group": "patient", "target": "y"})
    run = train("mlp", data, training=Training(epochs=1), out=tmp_path / "run")
    subject = subject_of_run(run, data)
    assert subject.groups == "patient"
    count = data.encoding["group"]["counts"]["test"]
    assert len(held_out_answers(subject).example.unique()) == count < len(data.splits["test"])
