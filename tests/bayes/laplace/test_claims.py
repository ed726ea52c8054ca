"""What is asked of a Laplace posterior: a full one is the linearized network's, a changed one is not."""

from dataclasses import replace

import pytest
import torch

from margin.bayes.laplace.claims import classes_demo, demo, is_small, last_layer, posterior
from margin.bayes.laplace.learning import laplace
from margin.core.catalog import claims
from margin.core.findings import Verdict, finding_of


@pytest.mark.parametrize("structure", ["full", "last"])
def test_an_exact_structure_holds_and_one_of_other_weights_is_violated(structure: str) -> None:
    subject = demo()
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    model = laplace(subject.model.net, x, y, task="values", structure=structure)
    asked = replace(subject, model=model)
    claim = claims()["bayes/laplace.posterior"]
    assert claim.refusal(asked) == "" and is_small(asked)
    assert finding_of(claim, asked).verdict is Verdict.HOLDS
    with torch.no_grad():
        model.net[0].weight *= 1.1
    assert finding_of(claim, asked).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("structure", ["kron", "diag"])
def test_other_structures_are_measured_beside_the_full_one(structure: str) -> None:
    subject = classes_demo()
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    full, other = (laplace(subject.model, x, y, structure=s, learn="none") for s in ("full", structure))
    found = posterior(replace(subject, model=other))
    assert found.verdict is Verdict.MEASURED
    spreads = [m.linearized(x)[1].detach().diagonal(dim1=1, dim2=2).sqrt() for m in (other, full)]
    ratio = (spreads[0] / spreads[1]).flatten()
    assert torch.allclose(found.value, torch.stack((ratio.min(), ratio.quantile(0.5), ratio.max())))
    assert float((ratio - 1).abs().max()) > 0.05


def test_the_gain_of_a_last_layer_is_the_mean_difference_of_log_probabilities() -> None:
    subject = classes_demo()
    x, y = subject.train[0].inputs[0], subject.train[0].targets
    found = last_layer(subject)
    model = laplace(subject.model, x, y, structure="last")
    with torch.no_grad():
        after = model(x).gather(1, y[:, None]).mean()
        before = subject.model(x).log_softmax(1).gather(1, y[:, None]).mean()
    assert float(found.value) == pytest.approx(float(after - before))
