from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import margin
from margin.auditing.asking.answers import ask
from margin.auditing.subject.subjects import subject_of
from margin.core.catalog import claims
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.data.examples import Arrays, Data
from margin.theory.prediction.held_out import held_out_losses

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(30) % 3
DOMAIN = Domain(torch.tensor(-9.0), torch.tensor(9.0))


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        return self.linear(x)[:, 0]


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def objective_mean(subject):
    batch = subject.test[0]
    with torch.no_grad():
        return subject.objective(subject.model, batch, torch.Generator()).mean()


def test_integer_labels_and_scores_mean_classes_and_it_is_said(classifier):
    subject = subject_of(classifier, (X, Y))
    assert subject.task.name == "classes"
    assert any("(N, 3)" in text and text.startswith("task: classes") for text in subject.assumed)
    expected = nn.functional.cross_entropy(classifier(X), Y)
    torch.testing.assert_close(objective_mean(subject), expected)


def test_real_targets_mean_values():
    model = Squeezed()
    subject = subject_of(model, (X, X[:, 0].double()))
    assert subject.task.name == "values"
    torch.testing.assert_close(objective_mean(subject), (model(X) - X[:, 0]).square().mean())
    assert any(text.startswith("task: values") for text in subject.assumed)


@pytest.mark.parametrize("targets", [X[:, 0], X[:, :1], X[:, :2], (3 * X[:, 0]).round().long()])
@pytest.mark.parametrize("columns", [0, 1, 2])
@pytest.mark.parametrize("rows", [30, 1])
def test_values_are_compared_one_by_one_or_refused(columns, targets, rows):
    """Outputs (N, 1) are one value an example; (N, 1) against (N,) never becomes (N, N)."""
    torch.manual_seed(0)
    model = nn.Linear(4, columns) if columns else Squeezed()
    x, y = X[:rows], targets[:rows]
    fits = columns in ((0, 1) if y.ndim == 1 else (y.shape[1],))
    if not fits:
        with pytest.raises(ValueError, match="outputs and targets must have one shape"):
            subject_of(model, (x, y), task="values")
        return
    subject = subject_of(model, (x, y), task="values")
    losses = held_out_losses(subject).values
    expected = (model(x).detach().reshape(rows, -1) - y.reshape(rows, -1)).square().flatten()
    torch.testing.assert_close(losses.float(), expected)
    column = "outputs: (N, 1), read as one number an example (N,)"
    assert (column in subject.assumed) == (columns == 1 and y.ndim == 1)


def test_a_column_of_values_is_audited_as_the_row_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    y = X[:, 0] + 0.1 * X[:, 1]
    names = ["residuals.*", "risk.loss", "baseline.constant"]
    column = margin.audit(model, (X, y), train=(X, y), claims=names)
    row = margin.audit(nn.Sequential(model, nn.Flatten(0)), (X, y), train=(X, y), claims=names)
    assert len(column.findings) == 5 and not column.failed
    for name, found in column.findings.items():
        assert float(found.value) == float(row.findings[name].value)


def test_what_is_stated_is_not_among_what_was_assumed(classifier):
    assert subject_of(classifier, (X, Y), task="classes").assumed == ()


def test_probabilities_are_not_taken_for_logits(classifier):
    softmax = nn.Sequential(classifier, nn.Softmax(-1))
    subject = subject_of(softmax, (X, Y))
    torch.testing.assert_close(objective_mean(subject), nn.functional.cross_entropy(classifier(X), Y))
    assert any("probabilities" in text for text in subject.assumed)
    torch.testing.assert_close(subject.task.probabilities(softmax(X)), classifier(X).softmax(-1))
    scores, logits = subject.task.classes(softmax(X)), classifier(X)
    torch.testing.assert_close(scores[:, 0] - scores[:, 1], logits[:, 0] - logits[:, 1])


@pytest.mark.parametrize("task", ["binary", "halfspace"])
def test_a_column_of_one_output_is_read_as_one_number_and_it_is_said(task):
    class Column(Squeezed):
        def forward(self, x):
            return self.linear(x)

    flat, column = Squeezed(), Column()
    column.load_state_dict(flat.state_dict())
    one, other = (subject_of(m, (X, Y % 2), task=task) for m in (flat, column))
    assert not any("(N, 1)" in text for text in one.assumed)
    assert "outputs: (N, 1), read as one number an example (N,)" in other.assumed
    torch.testing.assert_close(objective_mean(one), objective_mean(other))
    outputs = column(X)
    torch.testing.assert_close(other.task.classes(outputs), one.task.classes(flat(X)))
    for name, column_of in other.task.predict(outputs).items():
        torch.testing.assert_close(column_of, one.task.predict(flat(X))[name])
    torch.testing.assert_close(
        other.task.scores["accuracy"](outputs, Y % 2), one.task.scores["accuracy"](flat(X), Y % 2)
    )
    findings = [
        ask(s, [claims()[n] for n in ("theory/ranking.auroc", "robust/linf.fgsm")]).findings
        for s in (replace(one, domain=DOMAIN), replace(other, domain=DOMAIN))
    ]
    for name, finding in findings[0].items():
        assert findings[1][name].as_json() == finding.as_json()


def test_a_binary_task_states_probabilities_and_a_sigmoid_is_suspected():
    model = Squeezed()
    subject = subject_of(model, (X, Y % 2), task="binary")
    expected = nn.functional.binary_cross_entropy_with_logits(model(X), (Y % 2).float())
    torch.testing.assert_close(objective_mean(subject), expected)
    found = ask(subject, [claims()["theory/calibration.nll"]]).findings["theory/calibration.nll"]
    assert found.value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert subject.assumed == ()
    sigmoid = nn.Sequential(model, nn.Sigmoid())
    with pytest.raises(
        ValueError, match=r"^the outputs all lie in \[0, 1\].*task probabilities.* without its"
    ):
        subject_of(sigmoid, (X, Y % 2), task="binary")
    for task in ("binary", "logits"):
        assert subject_of(model, (X, Y % 2), task=task).task.name == "binary"
    torch.testing.assert_close(
        objective_mean(subject_of(sigmoid, (X, Y % 2), task="probabilities")), expected
    )


def test_a_halfspace_is_stated():
    subject = subject_of(Squeezed(), (X, Y % 2), task="halfspace")
    assert subject.task.name == "halfspace"
    with pytest.raises(ValueError, match=r"^state the task: integer targets with outputs \(N,\)"):
        subject_of(Squeezed(), (X, Y % 2))


@pytest.mark.parametrize(
    "kind", ["tensors", "arrays", "lists", "float64", "batches", "batch", "examples", "loader", "dataset"]
)
def test_the_forms_of_data_give_the_same_examples(classifier, kind):
    import torch.utils.data as tud

    cut = [Batch((X[:8],), Y[:8]), Batch((X[8:],), Y[8:].int())]
    data = {
        "tensors": (X, Y),
        "arrays": (X.numpy(), Y.numpy().astype(np.uint16)),
        "lists": (X.tolist(), Y.tolist()),
        "float64": (X.double(), Y),
        "batches": cut,
        "batch": Batch((X,), Y),
        "examples": Arrays((X,), Y),
        "loader": tud.DataLoader(tud.TensorDataset(X, Y), batch_size=7),
        "dataset": tud.TensorDataset(X, Y),
    }[kind]
    state = torch.get_rng_state()
    subject = subject_of(classifier, data, train=data)
    assert torch.equal(torch.get_rng_state(), state)
    for batches in (subject.test, subject.train):
        assert torch.equal(torch.cat([b.inputs[0] for b in batches]), X)
        targets = torch.cat([b.targets for b in batches])
        assert torch.equal(targets, Y)
        assert targets.dtype == torch.int64
        assert all(b.inputs[0].dtype == torch.float32 for b in batches)


def test_type_follows_the_model(classifier):
    subject = subject_of(classifier.double(), (X, Y))
    assert subject.test[0].inputs[0].dtype == torch.float64


def test_the_model_is_left_as_it_was(classifier):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), classifier)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    generator = torch.get_rng_state()
    subject = subject_of(model, (X, Y))
    assert subject.model is model
    assert all(m.training for m in model.modules())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert subject.independent  # in evaluation mode


class Centered(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x - x.mean(0))


class Noisy(Centered):
    def forward(self, x):
        return self.inner(x + torch.randn_like(x))


def test_examples_that_read_each_other_are_found(classifier):
    subject = subject_of(Centered(classifier), (X, Y))
    assert not subject.independent
    assert any("read each other" in text for text in subject.assumed)


def test_a_model_that_draws_is_said(classifier):
    assert any("draws at random" in text for text in subject_of(Noisy(classifier), (X, Y)).assumed)


def data_of(**splits):
    return Data(
        name="irises", splits=splits, spec={}, encoding={"classes": ["a", "b", "c"]}, notes=("a note",),
        domain=Domain(torch.tensor(-9.0), torch.tensor(9.0)),
    )  # fmt: skip


def test_data_give_their_test_part_else_the_validation_part_and_say_so(classifier):
    test, val, train = (Arrays((X + i,), Y) for i in range(3))
    subject = subject_of(classifier, data_of(test=test, val=val, train=train))
    assert torch.equal(subject.test[0].inputs[0], X)
    assert torch.equal(subject.train[0].inputs[0], X + 2)
    assert subject.class_names == ("a", "b", "c")
    assert subject.domain.width == 18
    assert subject.assumed[0] == "a note"
    subject = subject_of(classifier, data_of(val=val))
    assert torch.equal(subject.test[0].inputs[0], X + 1)
    assert "irises has no test part: its validation part is taken as held out" in subject.assumed
    with pytest.raises(ValueError, match=r"^irises must have a test or val part: it has train$"):
        subject_of(classifier, data_of(train=train))


def test_a_domain_of_two_numbers_is_a_box(classifier):
    subject = subject_of(classifier, (X, Y), domain=(-5, 5))
    assert subject.domain.width == 10
    assert subject_of(classifier, (X, Y)).domain is None


def test_text_labels_need_the_order_of_the_outputs(classifier):
    words = np.array(["x", "y", "z"])[Y.numpy()]
    subject = subject_of(classifier, (X, words), class_names=("z", "y", "x"))
    assert subject.test[0].targets.tolist() == (2 - Y).tolist()


def changed(tensor, index, value):
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


class Raising(nn.Module):
    def forward(self, x):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied\nsecond line")


class Words(nn.Module):
    def forward(self, x):
        return ["yes"] * len(x)


WORDS = np.array(["cat"] * 30)
REFUSED = {
    "out of range": (nn.Linear(4, 3), (X, changed(Y, 12, 7)), {},
        "labels must lie in 0 .. 2: got label 7 with 3 outputs (held-out example 12)"),
    "just out of range": (nn.Linear(4, 3), (X, changed(Y, 0, 3)), {},
        "labels must lie in 0 .. 2: got label 3 with 3 outputs (held-out example 0)"),
    "negative": (nn.Linear(4, 3), (X, changed(Y, 2, -1)), {},
        "labels must lie in 0 .. 2: got label -1 with 3 outputs (held-out example 2)"),
    "second batch": (nn.Linear(4, 3), [Batch((X,), Y), Batch((X,), changed(Y, 3, 9))], {},
        "labels must lie in 0 .. 2: got label 9 with 3 outputs (held-out example 33)"),
    "training": (nn.Linear(4, 3), (X, Y), {"train": (X, changed(Y, 0, 5))},
        "labels must lie in 0 .. 2: got label 5 with 3 outputs (training example 0)"),
    "row against column": (Squeezed(), (X, X[:, :1]), {},
        "outputs and targets must have one shape: got outputs (N,), targets (N, 1); give y.flatten()"),
    "real labels": (nn.Linear(4, 3), (X, Y.float()), {"task": "classes"},
        "labels must be integers: got targets of type float32; give y.long()"),
    "one-hot": (nn.Linear(4, 3), (X, nn.functional.one_hot(Y)), {},
        "labels must be one integer an example: got targets (N, 3); of one-hot rows give y.argmax(1), "
        "or state task multilabel"),
    "raises": (Raising(), (X, Y), {},
        "the model must accept the data: given (30, 4) float32, the model itself (Raising) raised "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    "no tensor": (Words(), (X, Y), {},
        "the model must return one tensor with a row per example: given (30, 4) float32, got list"),
    "empty": (nn.Linear(4, 3), (X[:0], Y[:0]), {},
        "the held-out data must have at least one example: they are empty"),
    "no batches": (nn.Linear(4, 3), [], {},
        "the held-out data must be a pair (x, y), batches, Examples or Data: got list of 0"),
    "no pair": (nn.Linear(4, 3), X, {},
        "the held-out data must be a pair (x, y), batches, Examples or Data: got Tensor"),
    "lengths": (nn.Linear(4, 3), (X, Y[:7]), {}, "inputs and targets must have one length: got [7, 30]"),
    "text": (nn.Linear(4, 3), (X, WORDS), {},
        "y of the held-out data is text (cat): give class_names in the order of the outputs"),
    "unknown class": (nn.Linear(4, 3), (X, WORDS), {"class_names": ("a", "b", "c")},
        "y of the held-out data must name a class of a, b, c: got 'cat'"),
    "names": (nn.Linear(4, 3), (X, Y), {"class_names": ("a", "b")},
        "class_names must name each of the 3 classes: got 2"),
    "text inputs": (nn.Linear(4, 3), (WORDS, Y), {},
        "x of the held-out data must be numbers: got an array of type <U3"),
    "task": (nn.Linear(4, 3), (X, Y), {"task": "regression"},
        "task must be one of classes, binary, multilabel, terms, logits, probabilities, scores, halfspace, "
        "values: got 'regression'"),
    "no targets": (nn.Linear(4, 3), (X, None), {},
        "state the task: without targets it cannot be inferred; of an autoencoder give (x, x)"),
    "nan input": (nn.Linear(4, 3), (changed(X, (5, 1), float("nan")), Y), {},
        "inputs must be finite: held-out example 5 has nan"),
    "infinite target": (Squeezed(), (X, changed(X[:, 0], 4, float("inf"))), {},
        "targets must be finite: held-out example 4 has inf"),
    "outside": (nn.Linear(4, 3), (changed(X, (6, 2), 44.0), Y), {"domain": (-9, 9)},
        "inputs must lie in the domain: held-out example 6 has 44, outside [-9, 9]; "
        f"all span [{X.min():.6g}, 44]"),
    "halfspace": (nn.Linear(4, 3), (X, Y % 2), {"task": "halfspace"},
        "task halfspace needs one number an example (N,) or (N, 1): the outputs are (N, 3)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(case):
    model, data, options, message = REFUSED[case]
    with pytest.raises(ValueError) as caught:
        subject_of(model, data, **options)
    assert str(caught.value) == message


def test_a_model_that_answers_nan_is_a_subject():
    model = nn.Linear(4, 3)
    nn.init.constant_(model.weight, float("nan"))
    assert subject_of(model, (X, Y)).task.name == "classes"


def test_a_stranger_has_the_gauss_newton_matrix_of_its_own_loss():
    """|G| of a linear map with softmax by brute force: mean over examples of x x' (x) (diag p - p p')."""
    torch.manual_seed(3)
    model = nn.Linear(4, 3).double()
    names = [f"theory/curvature.{kind}" for kind in ("gauss_newton", "gauss_newton_definite", "fisher")]
    found = ask(subject_of(model, (X.double(), Y)), [claims()[name] for name in names])
    assert [answer.absence for answer in found.answers] == ["", "", ""]
    p = model(X.double()).softmax(1).detach()
    rows = torch.cat((X.double(), torch.ones(30, 1).double()), 1)
    M = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    G = torch.einsum("ni,nj,nkl->ikjl", rows, rows, M).reshape(15, 15) / 30
    norm = torch.linalg.eigvalsh(G)[-1].item()
    measured = found.findings[names[0]]
    assert measured.value[1].item() == pytest.approx(norm, rel=1e-3)
    assert measured.value[0].item() == pytest.approx(norm, rel=1e-3)  # linear: the Hessian is G
    assert str(found.findings[names[1]].verdict) == "holds"


class Doubling(Noisy):
    def forward(self, x):
        return self.inner(x.mul_(2))


def test_a_model_that_overwrites_its_input_is_told_so_and_nothing_else(classifier):
    given = [Batch((X.clone(),), Y)]
    subject = subject_of(Doubling(classifier), given)
    assert [text for text in subject.assumed if "overwrites" in text]
    assert not [text for text in subject.assumed if "random" in text or "read each other" in text]
    assert subject.independent and torch.equal(given[0].inputs[0], X)
    torch.testing.assert_close(subject.model(X), classifier(2 * X))
    assert subject.model._get_name() == "Doubling"


def test_a_model_that_draws_does_not_read_its_batch(classifier):
    assert subject_of(Noisy(classifier), (X, Y)).independent


@pytest.mark.parametrize("frozen", [False, True])
def test_a_model_in_training_mode_is_said_where_it_answers_otherwise(classifier, frozen):
    model = nn.Sequential(nn.BatchNorm1d(4), classifier)
    if frozen:
        model.eval()
    assert any("training mode" in text for text in subject_of(model, (X, Y)).assumed) is not frozen
    assert model.training is not frozen and int(model[0].num_batches_tracked) == 0
    assert not any("training mode" in text for text in subject_of(classifier, (X, Y)).assumed)


def test_two_inputs_with_a_domain_are_told_the_true_reason():
    class Both(Squeezed):
        def forward(self, a, b):
            return torch.stack((self.linear(a)[:, 0], self.linear(b)[:, 0]), 1)

    subject = subject_of(Both(), ((X, X), Y % 2), domain=DOMAIN)
    assert ask(subject, [claims()["robust/linf.fgsm"]]).answers[0].absence == (
        "does not apply: has 2 inputs: it needs one input of real numbers"
    )


def test_a_probability_is_judged_as_its_logit_is():
    """The repro of a sigmoid read as a logit: accuracy 1, where it was about one half."""
    x = torch.rand(200, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.5).long()
    linear = nn.Linear(6, 1)
    with torch.no_grad():
        linear.weight.zero_()
        linear.weight[0, 0] = 20
        linear.bias.fill_(-10.0)
    model = nn.Sequential(linear, nn.Sigmoid())
    names = [n for n in claims() if n.startswith(("theory/risk.", "theory/calib", "theory/rank"))]
    asked = [claims()[name] for name in names]
    stated = ask(subject_of(model, (x, y), task="probabilities"), asked).findings
    logits = ask(subject_of(linear, (x, y), task="binary"), asked).findings
    assert stated["theory/risk.accuracy"].value == 1
    assert stated.keys() == logits.keys() and len(stated) >= 6
    for name, finding in stated.items():
        torch.testing.assert_close(finding.value, logits[name].value, rtol=1e-4, atol=1e-5)


def test_a_later_batch_tells_logits_from_probabilities():
    x = torch.cat((torch.rand(300, 1), torch.tensor([[1.5]])))
    y = (x[:, 0] > 0.5).long()
    with pytest.raises(ValueError, match="probabilities must lie in"):
        subject_of(nn.Identity(), (x, y), task="probabilities")
    assert subject_of(nn.Identity(), (x, y), task="binary").task.name == "binary"
    rows = torch.cat((x, 1 - x), 1)
    rows[-1] = torch.tensor([3.0, -4.0])
    assert subject_of(nn.Identity(), (rows, y)).task is CLASSES


def test_a_number_that_is_no_probability_fails_rather_than_being_clamped():
    from margin.auditing.subject.outputs import ONE_VS_REST, PROBABILITIES, PROBABILITY

    wrong, label = torch.tensor([1.2, -0.1]), torch.tensor([1, 0])
    assert PROBABILITY.loss(wrong, label).isnan().all()
    rows = torch.tensor([[0.5, 1.5], [0.5, -0.5]])
    for task in (PROBABILITIES, ONE_VS_REST):
        assert task.loss(rows, torch.tensor([1, 1])).isnan().all()
    p, labels = torch.tensor([[0.2, 0.9, 0.4]]), torch.tensor([1])
    loss = -(torch.tensor(0.8).log() + torch.tensor(0.9).log() + torch.tensor(0.6).log())
    torch.testing.assert_close(ONE_VS_REST.loss(p, labels), loss[None])
    torch.testing.assert_close(ONE_VS_REST.probabilities(p), p / 1.5)


class Rows(nn.Module):
    """A linear model that notes how many examples it is given, less the mean of their batch if so said."""

    def __init__(self, outputs: int, mates: bool = False):
        super().__init__()
        self.linear, self.mates, self.seen = nn.Linear(4, outputs), mates, []

    def forward(self, x):
        self.seen.append(len(x))
        return self.linear(x - x.mean(0) if self.mates else x)


@pytest.mark.parametrize("mates", [False, True])
def test_a_stranger_is_read_by_its_first_few_examples(mates):
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    model = Rows(3, mates).eval()
    subject = subject_of(model, (x, torch.arange(300) % 3))
    assert subject.independent is not mates
    # one that is counted, five passes over the few, one over half of them: a batch of 256 is never asked
    assert model.seen == [1, 32, 32, 32, 32, 16]


def test_targets_are_read_beyond_the_first_few():
    """Of 40 first ones all are 0: that the others are 1 makes labels of them."""
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(2))
    y = (torch.arange(60) >= 40).float()
    with pytest.raises(ValueError, match="targets that are 0 or 1 may be labels"):
        subject_of(Rows(1), (x, y[:, None]))


def test_one_output_outside_of_0_to_1_beyond_the_first_few_tells_logits():
    x = torch.linspace(0, 1, 60)[:, None]
    x[40] = 3.0
    assert subject_of(nn.Identity(), (torch.cat((x, x), 1), torch.arange(60) % 2)).task is CLASSES
    x[40] = 1.0
    with pytest.raises(ValueError, match="all lie in"):
        subject_of(nn.Identity(), (torch.cat((x, x), 1), torch.arange(60) % 2))


def test_a_model_that_takes_its_batch_whole_or_not_is_audited_and_said():
    """Of a graph's layers every node is needed: nothing is cut from the batch."""
    torch.manual_seed(0)
    mix = torch.rand(70, 70)

    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(mix @ x)

    x, weight = torch.randn(70, 4), (torch.arange(70) % 2).float()
    model = Mixing()
    y = model(x).argmax(1)
    y[:10] = 0
    audit = margin.audit(model, [Batch((x,), y, weight)], claims=["risk.accuracy", "behavior.*"])
    assert not [a.broken for a in audit.answers if a.broken]
    assert any("takes the whole batch or none" in line for line in audit.assumed)
    accuracy = audit.findings["theory/risk.accuracy"]
    assert accuracy.value.item() == pytest.approx(
        ((model(x).argmax(1) == y).double() * weight).sum().item() / 35
    )
    assert audit.findings["theory/behavior.random"].verdict == "holds"
