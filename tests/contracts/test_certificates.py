"""Every classifier of the catalog is bounded over a ball of its inputs, or the layer that is not is named.

Of one that classifies each pixel every pixel's margins are bounded; of graphs each graph's would be.
"""

import pytest
import torch

from margin.core.catalog import Entry, models, resolve
from margin.core.types import Domain
from margin.robust.attacks.gradient import moved_input
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates.certify import ball_of
from margin.robust.certificates.interval_arithmetic import NoIntervalRule
from margin.robust.certificates.intervals import margin_bounds
from margin.robust.certificates.linear_bounds import crown_margins
from margin.robust.training.certified import Beside
from margin.testing import built, first_batch, tiny_data
from smaller import SMALLER

EPS = 1e-3
POINTS = 20
GRAPHS = r"layer '[\w.]+' \(\w+\): is_inference \(.*sparse matrix of a graph"
STEPS = r"_pack_padded_sequence \(the steps of sequences of several lengths"

REFUSED = {
    "bayes/gp:classes": r"the model itself \(GaussianProcessClassifier\): linalg_solve_triangular",
    "bayes/hmc": r"layer 'net\.layers\.1' \(Linear\)",
    "bayes/mc_dropout": r"the model itself \(DropoutClassifier\): __eq__",
    "bayes/sgld": r"layer 'net\.layers\.1' \(Linear\)",
    **dict.fromkeys(
        (f"geometric/{name}" for name in ("gcn", "gat", "gatv2", "sage", "gin", "gcn:graphs", "gin:graphs")),
        GRAPHS,
    ),
    **dict.fromkeys((f"geometric/{name}" for name in ("chebnet", "poly_filter", "spectral_filter")), GRAPHS),
    "geometric/label_propagation": "the output does not depend on the input",
    **dict.fromkeys((f"sequence/{name}" for name in ("elman", "lstm", "gru", "bidirectional")), STEPS),
    "sequence/lru": r"layer '.*\.core' \(LRU\): view_as_complex",
    "sequence/mingru": r"\(MinGRU\): empty_like",
    "sequence/minlstm": r"\(MinLSTM\): empty_like",
}
"""What the message names of the classifiers of real inputs that are not bounded, and of no other."""


def asked(entry):
    """The model of its first input alone, some of these inputs, and the map to a score for each class."""
    data, task = tiny_data(entry), resolve(entry.task)
    model, batch = built(entry, data, options=SMALLER.get(entry.name, {})).eval(), first_batch(entry, data)
    x, alike = batch.inputs[0], all(len(part) == len(batch.inputs[0]) for part in batch.inputs)
    alike = alike and REFUSED.get(entry.name) != GRAPHS
    rows = slice(3) if alike else slice(None)
    rest = [part[rows] if alike else part for part in batch.inputs[1:]]
    return (Beside(model, rest) if rest else model), x[rows], task.classes, batch


CLASSIFIERS = [entry for entry in models().values() if resolve(entry.task).classes is not None]


@pytest.mark.parametrize("entry", CLASSIFIERS, ids=lambda entry: entry.name)
def test_a_classifier_is_bounded_or_what_is_not_is_named(entry: Entry) -> None:
    model, x, classes, batch = asked(entry)
    if not x.is_floating_point():
        assert entry.name not in REFUSED
        with pytest.raises(ValueError, match=r"an attack moves one input of real numbers: got torch\.int64"):
            moved_input(batch)
        return
    with torch.no_grad():
        labels = classes(model(x)).argmax(-1)
    wide = Domain(torch.tensor(-100.0), torch.tensor(100.0))
    ball = ball_of(x, Threat(wide, EPS))
    if entry.name in REFUSED:
        with pytest.raises(NoIntervalRule, match=REFUSED[entry.name]):
            margin_bounds(model, ball.low, ball.high, labels, classes)
        return
    intervals = margin_bounds(model, ball.low, ball.high, labels, classes)
    linear = crown_margins(model, ball, labels, classes)
    assert (linear >= intervals - 1e-9).all() and not linear.isnan().any()
    generator = torch.Generator().manual_seed(0)
    for _ in range(POINTS):
        corner = x + EPS * (1 - 1e-6) * torch.randn(x.shape, generator=generator).sign()
        with torch.no_grad():
            out = classes(model(corner)).double()
        gaps = out.gather(-1, labels[..., None]) - out
        assert (gaps >= linear).all()


def test_the_refused_are_classifiers() -> None:
    assert REFUSED.keys() <= {entry.name for entry in CLASSIFIERS}
