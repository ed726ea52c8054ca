"""Strangers by what they return: several things at once, several labels, a class at each place."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auditing.strangers.case import PREDICTION, SLOPES, Around, Stranger, digits, mlp, trained

BOX = {"domain": (0.0, 1.0)}


class Returning(Around):
    def __init__(self, inner: nn.Module, made: object) -> None:
        super().__init__(inner)
        self.made = made

    def forward(self, x: Tensor) -> object:
        return self.made(self.inner(x))


class Output(OrderedDict):
    """As Hugging Face's models answer."""

    def __getattr__(self, name: str) -> object:
        if name not in self:
            raise AttributeError(name)
        return self[name]


@dataclass
class Answer:
    hidden: Tensor
    logits: Tensor


Pair = namedtuple("Pair", "hidden logits")


def _digits_net() -> nn.Module:
    x, y, _, _ = digits()
    return trained(mlp(64, 12, 10), x, y)


def _returning(made: object, read: object, **more: object) -> Stranger:
    model = Returning(_digits_net(), made).eval()
    return Stranger(model=model, data=digits()[2:], read=read, **({"options": BOX} | more))


def returns_a_tuple() -> Stranger:
    said = ("outputs: 0 of the tuple that the model returns, which also holds 1; output names another",)
    return _returning(lambda z: (z, z + 1), lambda r: r[0], claims=(), says=said)


def returns_the_loss_first() -> Stranger:
    return _returning(lambda z: (z.mean(), z), lambda r: r[1], says=("outputs: 1 of the tuple",))


def returns_a_list() -> Stranger:
    return _returning(lambda z: [z], lambda r: r[0], says=("outputs: 0 of the list that the model returns",))


def returns_a_dict() -> Stranger:
    return _returning(
        lambda z: {"hidden": -z, "logits": z}, lambda r: r["logits"],
        says=("outputs: logits of the dict that the model returns, which also holds hidden",),
    )  # fmt: skip


def returns_a_dict_of_one() -> Stranger:
    return _returning(lambda z: {"out": z}, lambda r: r["out"], says=("outputs: out of the dict",))


def returns_a_dict_and_is_told() -> Stranger:
    options = {**BOX, "output": "student"}
    return _returning(lambda z: {"teacher": -z, "student": z}, lambda r: r["student"], options=options)


def returns_a_tuple_and_is_told() -> Stranger:
    return _returning(lambda z: (-z, (0, z)), lambda r: r[1][1], options={**BOX, "output": "1.1"})


def returns_an_output_object() -> Stranger:
    return _returning(
        lambda z: Output(loss=z.mean(), logits=z, hidden_states=(-z, -z)), lambda r: r["logits"],
        says=("outputs: logits of the Output",),
    )  # fmt: skip


def returns_a_dataclass() -> Stranger:
    return _returning(lambda z: Answer(-z, z), lambda r: r.logits, says=("outputs: logits of the Answer",))


def returns_a_named_tuple() -> Stranger:
    return _returning(lambda z: Pair(-z, z), lambda r: r.logits, says=("outputs: logits of the Pair",))


def _labels() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether the digit is even, above 4, and a 1 or a 7."""
    x, y, x_test, y_test = digits()
    return x, _three(y), x_test, _three(y_test)


def _three(y: Tensor) -> Tensor:
    return torch.stack((y % 2 == 0, y > 4, (y == 1) | (y == 7)), 1).long()


def _labeler() -> nn.Module:
    x, y, _, _ = _labels()
    return trained(mlp(64, 12, 3), x, y.float(), loss=nn.functional.binary_cross_entropy_with_logits)


def _sides(z: Tensor) -> Tensor:
    p = z.double().sigmoid()
    return torch.stack((1 - p, p), 1)


def several_labels() -> Stranger:
    x_train, y_train, x, y = _labels()
    return Stranger(
        model=_labeler(), data=(x, y), options={**BOX, "train": (x_train, y_train)}, claims=(),
        read=torch.flatten, labels=y.flatten(),
        predict=lambda z: (z > 0).long(), probabilities=_sides,
        says=("task: several labels an example", "binary cross-entropy, the mean over labels"),
    )  # fmt: skip


def several_real_labels() -> Stranger:
    _, _, x, y = _labels()
    return Stranger(
        model=_labeler(), data=(x, y.float()), read=torch.flatten, labels=y.flatten(),
        predict=lambda z: (z > 0).long(), probabilities=_sides, claims=(*PREDICTION, *SLOPES),
    )  # fmt: skip


def several_sigmoids() -> Stranger:
    _, _, x, y = _labels()
    return Stranger(
        model=nn.Sequential(_labeler(), nn.Sigmoid()), data=(x, y.bool()), read=torch.flatten,
        options={"task": "probabilities", **BOX}, labels=y.flatten(), predict=lambda p: (p > 0.5).long(),
        probabilities=lambda p: torch.stack((1 - p.double(), p.double()), 1),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.inner = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.down(x).relu()
        low = self.inner(nn.functional.max_pool2d(wide, 2)).relu()
        return self.out(torch.cat((wide, self.up(low)), 1))


def _scenes(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, 3, 8, 8, generator=generator)
    return x, (x[:, 0] + x[:, 1].roll(1, 1) > 1).long()


def _segmenter(classes: int = 2) -> nn.Module:
    x, y = _scenes()
    return trained(UNet(classes), x, y, steps=80)


def _pixels(z: Tensor) -> Tensor:
    return z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])


def segmentation() -> Stranger:
    x, y = _scenes()
    return Stranger(
        model=_segmenter(), data=(x, y), options={**BOX, "train": (x, y)}, claims=(), read=_pixels,
        labels=y.flatten(),
        says=("task: a class at each place", "(N, 2, 8, 8), the classes on axis 1"),
    )  # fmt: skip


def segmentation_with_pixels_left_out() -> Stranger:
    x, y = _scenes()
    known = torch.arange(64).view(8, 8) % 3 > 0
    return Stranger(
        model=_segmenter(), data=(x, torch.where(known, y, -100)), options=BOX,
        read=lambda z: _pixels(z)[known.flatten().repeat(len(z))], labels=y[:, known].flatten(),
        says=("held-out labels of -100 are left out (weight 0)",),
    )  # fmt: skip


def segmentation_by_softmax() -> Stranger:
    x, y = _scenes()
    return Stranger(
        model=nn.Sequential(_segmenter(3), nn.Softmax(1)), data=(x, y), read=_pixels, labels=y.flatten(),
        probabilities=lambda p: p.double(), says=("probabilities, because every row sums to 1",),
    )  # fmt: skip


def segmentation_by_one_logit() -> Stranger:
    x, y = _scenes()
    model = trained(
        UNet(1), x, y[:, None].float(), loss=nn.functional.binary_cross_entropy_with_logits, steps=80
    )
    return Stranger(
        model=model, data=(x, y), options=BOX, read=torch.flatten, labels=y.flatten(),
        predict=lambda z: (z > 0).long(), probabilities=_sides, says=("a label 0 or 1 at each place",),
    )  # fmt: skip


class Tagger(nn.Module):
    def __init__(self, turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.gru = nn.Embedding(20, 6), nn.GRU(6, 8, batch_first=True, bidirectional=True)
        self.out, self.turned = nn.Linear(16, 4), turned

    def forward(self, tokens: Tensor) -> Tensor:
        z = self.out(self.gru(self.embedding(tokens))[0])
        return z.transpose(1, 2) if self.turned else z


def _tagged(turned: bool, ignored: int = 0) -> Stranger:
    tokens = torch.randint(20, (30, 6), generator=torch.Generator().manual_seed(0))
    tags = tokens % 4
    model = trained(
        Tagger(turned), tokens, tags, steps=20,
        loss=lambda z, y: nn.functional.cross_entropy(z if turned else z.transpose(1, 2), y),
    )  # fmt: skip
    kept = torch.arange(6) >= ignored
    return Stranger(
        model=model, data=(tokens, torch.where(kept, tags, -100)), labels=tags[:, kept].flatten(),
        read=lambda z: (z.transpose(1, 2) if turned else z)[:, kept].reshape(-1, 4),
        says=(f"the classes on axis {1 if turned else 2}",), claims=(*PREDICTION, "gradient_noise.scale"),
    )  # fmt: skip


def tagging() -> Stranger:
    return _tagged(turned=False)


def tagging_as_torch_takes_it() -> Stranger:
    return _tagged(turned=True)


def tagging_with_padding() -> Stranger:
    return _tagged(turned=False, ignored=2)


RETURNED = (
    returns_a_tuple, returns_the_loss_first, returns_a_list, returns_a_dict, returns_a_dict_of_one,
    returns_a_dict_and_is_told, returns_a_tuple_and_is_told, returns_an_output_object, returns_a_dataclass,
    returns_a_named_tuple, several_labels, several_real_labels, several_sigmoids, segmentation,
    segmentation_with_pixels_left_out, segmentation_by_softmax, segmentation_by_one_logit, tagging,
    tagging_as_torch_takes_it, tagging_with_padding,
)  # fmt: skip
