"""Strangers that are not audited as they are; the refusal names a way on."""

import torch
from torch import Tensor, nn

from auditing.strangers.case import Around, Refused, digits, mlp


def _data() -> tuple[Tensor, Tensor]:
    return digits()[2:]


class Returning(Around):
    def __init__(self, inner: nn.Module, made: object) -> None:
        super().__init__(inner)
        self.made = made

    def forward(self, x: Tensor) -> object:
        return self.made(self.inner(x))


def returns_complex_numbers() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: z.to(torch.complex64))
    way = "got complex64; audit a module whose forward returns model(x).real, or"
    return Refused(model=model, data=_data(), way=way)


def returns_classes() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: z.argmax(1))
    way = "got int64; return what it decides by (the scores before argmax or a threshold), or audit its answ"
    return Refused(model=model, data=_data(), way=way)


def returns_decisions() -> Refused:
    model = Returning(mlp(64, 8, 1), lambda z: z[:, 0] > 0)
    return Refused(model=model, data=(_data()[0], _data()[1] % 2), way="real numbers: got bool; return what")


def returns_a_nested_tensor() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: torch.nested.nested_tensor(list(z)))
    return Refused(model=model, data=_data(), way="to_padded_tensor(model(x), 0.0)")


def returns_a_sparse_tensor() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: z.detach().to_sparse())
    return Refused(model=model, data=_data(), way="returns model(x).to_dense()")


def returns_a_row_for_each() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: [row[: 5 + i % 3] for i, row in enumerate(z)])
    return Refused(model=model, data=_data(), way="list of [0], [1], [2], [3], [4] and 27 more; ")


def returns_a_dict_of_two() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: {"student": z + 1, "teacher": z})
    way = (
        "returns a dict of student, teacher, any of which may be its outputs: name one by output ('student')"
    )
    return Refused(model=model, data=_data(), way=way)


def an_output_that_is_not_there() -> Refused:
    model = Returning(mlp(64, 8, 10), lambda z: {"hidden": z + 1, "logits": z})
    way = "output must name a part of what the model returns: got 'logit' of a dict of hidden, logits"
    return Refused(model=model, data=_data(), options={"output": "logit"}, way=way)


def several_labels_of_sigmoids() -> Refused:
    labels = (torch.rand(150, 10, generator=torch.Generator().manual_seed(0)) > 0.7).long()
    model = nn.Sequential(mlp(64, 8, 10), nn.Sigmoid())
    return Refused(model=model, data=(_data()[0], labels), way="state task probabilities, or audit the model")


def classes_on_either_axis() -> Refused:
    model = nn.Conv2d(1, 8, 1)
    data = (_data()[0].view(-1, 1, 8, 8), torch.zeros(150, 8, 8, dtype=torch.long))
    return Refused(model=model, data=data, way="state task terms for the last; for axis 1 audit a module")


def a_place_out_of_range() -> Refused:
    labels = torch.zeros(150, 8, 8, dtype=torch.long)
    labels[7, 3, 2] = 3
    way = "labels must lie in 0 .. 2, or be -100 where they are left out: got 3 (held-out example 7)"
    return Refused(model=nn.Conv2d(1, 3, 1), data=(_data()[0].view(-1, 1, 8, 8), labels), way=way)


def without_weights() -> Refused:
    with torch.device("meta"):
        model = mlp(64, 8, 10)
    way = "must be materialized: 0.weight is on the device meta; build the model on the CPU, or load"
    return Refused(model=model, data=_data(), way=way)


def one_hot() -> Refused:
    x, y = _data()
    return Refused(model=mlp(64, 8, 10), data=(x, nn.functional.one_hot(y)), way="give y.argmax(1)")


def labels_in_a_column() -> Refused:
    x, y = _data()
    return Refused(model=mlp(64, 8, 10), data=(x, y[:, None]), way="give y.flatten()")


def real_labels() -> Refused:
    x, y = _data()
    return Refused(model=mlp(64, 8, 10), data=(x, y.double()), way="give y.long()")


def real_labels_of_one_logit() -> Refused:
    x, y = _data()
    way = "give y.long().flatten(), and the task logits or probabilities"
    return Refused(model=mlp(64, 8, 1), data=(x, (y > 4).float()[:, None]), way=way)


def ignored_labels() -> Refused:
    x, y = _data()
    y = torch.where(y == 2, -100, y)
    return Refused(model=mlp(64, 8, 10), data=(x, y), way="(x[y != -100], y[y != -100])")


def labels_from_1() -> Refused:
    x, y = _data()
    return Refused(model=mlp(64, 8, 10), data=(x, y + 1), way="give y - 1")


def one_logit_untold() -> Refused:
    x, y = _data()
    return Refused(model=mlp(64, 8, 1), data=(x, (y > 4).long()), way="state the task")


def sigmoid_as_a_logit() -> Refused:
    x, y = _data()
    model = nn.Sequential(mlp(64, 8, 1), nn.Sigmoid())
    way = "state task probabilities, or audit the model without its sigmoid, or state task logits"
    return Refused(model=model, data=(x, (y > 4).long()), options={"task": "binary"}, way=way)


def sigmoids_as_logits() -> Refused:
    model = nn.Sequential(mlp(64, 8, 10), nn.Sigmoid())
    return Refused(model=model, data=_data(), way="state task probabilities, or audit the model without")


def sigmoid_as_a_halfspace() -> Refused:
    x, y = _data()
    model = nn.Sequential(mlp(64, 8, 1), nn.Sigmoid())
    return Refused(
        model=model, data=(x, (y > 4).long()), options={"task": "halfspace"}, way="state task probabilities"
    )


def logits_as_probabilities() -> Refused:
    way = "probabilities must lie in [0, 1]: the outputs lie in ["
    return Refused(model=mlp(64, 8, 10), data=_data(), options={"task": "probabilities"}, way=way)


REFUSED = (
    returns_complex_numbers, returns_classes, returns_decisions, returns_a_nested_tensor,
    returns_a_sparse_tensor, returns_a_row_for_each,
    returns_a_dict_of_two, an_output_that_is_not_there, several_labels_of_sigmoids, classes_on_either_axis,
    a_place_out_of_range, without_weights, one_hot,
    labels_in_a_column, real_labels, real_labels_of_one_logit, ignored_labels,
    labels_from_1, one_logit_untold, sigmoid_as_a_logit, sigmoids_as_logits, sigmoid_as_a_halfspace,
    logits_as_probabilities,
)  # fmt: skip
