"""The contract over models from elsewhere: no claim breaks on one, and what is said of it is right.

Accuracy and its kin are computed beside the audit by scikit-learn from the model's own outputs.
"""

import pytest
import torch
from sklearn import metrics
from torch import Tensor

import margin
from auditing.strangers.behavior import BEHAVIOR
from auditing.strangers.calls import CALLS
from auditing.strangers.case import Stranger
from auditing.strangers.heads import HEADS
from auditing.strangers.layers import LAYERS
from auditing.strangers.refused import REFUSED
from auditing.strangers.returned import RETURNED
from margin.core.findings import Verdict
from smaller import fewer_draws

STRANGERS = (*HEADS, *BEHAVIOR, *LAYERS, *CALLS, *RETURNED)


def answers_of(stranger: Stranger) -> tuple[Tensor, Tensor]:
    """What the model itself answers in evaluation mode, and the truth."""
    x, y = stranger.data
    model = stranger.own or stranger.model
    dtype = next((t.dtype for t in model.parameters() if t.is_floating_point()), torch.float32)
    inputs = [torch.as_tensor(part) for part in (x if isinstance(x, tuple) else (x,))]
    inputs = [part.clone().to(dtype) if part.is_floating_point() else part for part in inputs]
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    # in pieces of 256, as it is audited: what a batch holds may matter
    count = range(0, len(inputs[0]), 256)
    with torch.no_grad():
        returned = [model(*(part[i : i + 256] for part in inputs)) for i in count]
        outputs = torch.cat([stranger.read(part) for part in returned])
    for module, flag in flags:
        module.training = flag
    return outputs, stranger.labels if stranger.labels is not None else torch.as_tensor(y)


def expected_of(stranger: Stranger) -> dict[str, float]:
    """The numbers that scikit-learn finds, by the claims that must find them too."""
    if stranger.predict is None:
        return {}
    outputs, truth = answers_of(stranger)
    found, truth = stranger.predict(outputs).double().numpy(), truth.numpy()
    if truth.dtype.kind == "f":
        many = {} if truth.ndim > 1 else {"residuals.r2": metrics.r2_score(truth, found)}
        return many | {
            "residuals.mae": metrics.mean_absolute_error(truth, found),
            "residuals.rmse": metrics.mean_squared_error(truth, found) ** 0.5,
        }
    if not bool(outputs.isfinite().all()):
        return {}
    expected = {
        "risk.accuracy": metrics.accuracy_score(truth, found),
        "confusion.macro_f1": metrics.f1_score(truth, found, average="macro"),
        "confusion.balanced_accuracy": metrics.recall_score(
            truth, found, labels=sorted(set(truth.tolist())), average="macro", zero_division=0
        ),
    }
    if stranger.probabilities is None:
        return expected
    p = stranger.probabilities(outputs).double()
    hot = torch.nn.functional.one_hot(torch.from_numpy(truth), p.shape[1])
    own = p[torch.arange(len(p)), truth]
    kinds = sorted(set(truth.tolist()))
    # rounding may tell equal probabilities apart, as of a forest
    if kinds == list(range(p.shape[1])) and all(len(column.unique()) == len(p) for column in p.T):
        areas = [metrics.roc_auc_score(truth == k, p[:, k]) for k in (kinds if len(kinds) > 2 else [1])]
        expected["ranking.auroc"] = sum(areas) / len(areas)
    return expected | {
        "calibration.brier": float((p - hot).square().sum(1).mean()),
        "calibration.nll": float(-own.log().mean()),
    }


OF_DATA = (
    "a temperature needs two examples with a mistake",
    "what happened was given probability 0",
    "a half that chooses and one that judges need 40 examples",
    "a linear model of the inputs needs one label for each example",
    "no groups are known",
    "an image has several classes at once",
    "the answer tells nothing",
)
"""Why a claim is not asked that lies in the data, whatever the model."""


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are compared are of every example, and of no draw."""
    fewer_draws(monkeypatch)


# up to seven seconds each: a whole audit of a model as a stranger would write it
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, about backward passes of quantized layers
@pytest.mark.parametrize("build", STRANGERS, ids=lambda build: build.__name__)
def test_a_stranger_is_audited_rightly(build) -> None:
    stranger = build()
    expected = expected_of(build())  # of a model that was not asked before, nor is again
    own = stranger.own or stranger.model
    weights = [p.detach().clone() for p in own.parameters()]
    audit = margin.audit(
        stranger.model, stranger.data, claims=list(stranger.claims) or "*", **stranger.options
    )
    assert {a.claim.name: a.broken for a in audit.answers if a.broken} == {}
    assert int(audit.failed) == stranger.status, {n: f.failure for n, f in audit.findings.items()}
    for part in stranger.says:
        assert any(part in line for line in audit.assumed), audit.assumed
    unasked = [a.skipped for a in audit.answers if a.skipped and not a.skipped.endswith("--claims")]
    assert all(any(part in reason for part in (*stranger.cannot, *OF_DATA)) for reason in unasked), unasked
    assert all(any(part in reason for reason in unasked) for part in stranger.cannot)
    for name, value in expected.items():
        answer = next(a for a in audit.answers if a.claim.name == f"theory/{name}")
        if answer.finding is not None and answer.finding.verdict is not Verdict.FAILED:
            torch.testing.assert_close(answer.finding.value.item(), value, rtol=stranger.rtol, atol=1e-6)
        else:
            assert answer.refusal or answer.skipped or stranger.status, answer.absence
            assert build not in RETURNED, answer.absence
    for parameter, kept in zip(own.parameters(), weights, strict=True):
        assert torch.equal(parameter, kept)
    for name, why in stranger.lacks.items():
        (answer,) = [a for a in audit.answers if a.claim.name.endswith(name)]
        assert answer.absence == f"does not apply: {why}"
    if stranger.measured:
        assert not [n for n, f in audit.findings.items() if f.verdict is Verdict.UNFOUNDED]
    text = str(audit)
    assert "[nan, nan]" not in text and "[-inf, inf]" not in text


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, about nested tensors
@pytest.mark.parametrize("build", REFUSED, ids=lambda build: build.__name__)
def test_what_is_not_audited_is_told_the_way_on(build) -> None:
    refused = build()
    with pytest.raises(ValueError) as caught:
        margin.audit(refused.model, refused.data, **refused.options)
    assert refused.way in str(caught.value) and "\n" not in str(caught.value)


def test_there_are_fifty() -> None:
    assert len(STRANGERS) >= 50
