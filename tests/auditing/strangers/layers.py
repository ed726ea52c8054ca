"""Strangers by what they are made of, and by how many examples there are."""

import torch
from torch import Tensor, nn

from auditing.strangers.case import PREDICTION, Stranger, digits, mlp, trained

BOX = {"domain": (0.0, 1.0)}


def _images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y, x_test, y_test = digits()
    return x.view(-1, 1, 8, 8), y, x_test.view(-1, 1, 8, 8), y_test


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bag, self.out = nn.EmbeddingBag(50, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.bag(tokens))


def _texts() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (90, 7), generator=generator)
    lengths = torch.randint(2, 8, (90,), generator=generator)
    tokens[torch.arange(7) >= lengths[:, None]] = 0
    return tokens, lengths, tokens[:, 0] % 3


def embedding_bag() -> Stranger:
    tokens, _, y = _texts()
    return Stranger(
        model=trained(Bags(), tokens, y), data=(tokens, y), claims=(),
        cannot=("_embedding_bag_",),
    )  # fmt: skip


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.lstm = nn.Embedding(50, 6), nn.LSTM(6, 8, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.out(self.lstm(packed)[1][0][-1])


def packed_lstm() -> Stranger:
    tokens, lengths, y = _texts()
    return Stranger(
        model=trained(Packed(), (tokens, lengths), y, steps=20), data=((tokens[:30], lengths[:30]), y[:30]),
    )  # fmt: skip


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        h = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        return self.out(h.masked_fill(padding[..., None], 0).mean(1))


def transformer_with_padding() -> Stranger:
    tokens, _, y = _texts()
    return Stranger(model=trained(Attending(), tokens, y, steps=20), data=(tokens[:30], y[:30]))


class Residual(nn.Module):
    def __init__(self, norm: type[nn.Module], activation: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = norm(4) if norm is nn.BatchNorm2d else norm(2, 4)
        self.depthwise, self.act = nn.Conv2d(4, 4, 3, padding=1, groups=4), activation()
        self.out = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.stem(x)))
        return self.out((h + self.act(self.depthwise(h))).mean((2, 3)))


def conv_batch_norm_residual() -> Stranger:
    x, y, x_test, y_test = _images()
    model = trained(Residual(nn.BatchNorm2d, nn.GELU), x, y, steps=30)
    return Stranger(model=model, data=(x_test, y_test), options=BOX)


def conv_group_norm() -> Stranger:
    x, y, x_test, y_test = _images()
    model = trained(Residual(nn.GroupNorm, nn.SiLU), x, y, steps=30)
    return Stranger(model=model, data=(x_test, y_test), options=BOX)


def random_conv() -> Stranger:
    torch.manual_seed(0)
    _, _, x, y = _images()
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip
    return Stranger(model=model, data=(x, y), options=BOX, claims=(*PREDICTION, "regions.in_plane"))


def class_missing_in_the_test() -> Stranger:
    x, y, x_test, y_test = digits()
    keep = y_test != 3
    return Stranger(model=trained(mlp(64, 16, 10), x, y), data=(x_test[keep], y_test[keep]), options=BOX)


def one_example() -> Stranger:
    x, y, x_test, y_test = digits()
    return Stranger(
        model=trained(mlp(64, 16, 10), x, y), data=(x_test[:1], y_test[:1]), options=BOX, claims=(),
        says=("one example shows nothing",),
        cannot=("needs three examples", "quantile needs more examples", "the answer tells nothing"),
    )  # fmt: skip


def ten_of_one_class() -> Stranger:
    x, y, x_test, y_test = digits()
    keep = (y_test == 4).nonzero().flatten()[:10]
    return Stranger(
        model=trained(mlp(64, 16, 10), x, y), data=(x_test[keep], y_test[keep]), options=BOX, claims=()
    )


def many_examples() -> Stranger:
    torch.manual_seed(0)
    x = torch.randn(5_000, 8)
    y = (x[:, 0] + 0.5 * torch.randn(5_000) > 0).long()
    return Stranger(model=trained(mlp(8, 2), x[:500], y[:500], steps=20), data=(x, y), claims=PREDICTION)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.skip(x)).relu()


def small_resnet() -> Stranger:
    torch.manual_seed(0)
    x, y, x_test, y_test = _images()
    model = nn.Sequential(
        Block(1, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
    )
    model = trained(model, x[:150], y[:150], steps=10)
    return Stranger(model=model, data=(x_test[:60], y_test[:60]), options=BOX)


LAYERS = (
    embedding_bag, packed_lstm, transformer_with_padding, conv_batch_norm_residual, conv_group_norm,
    random_conv, class_missing_in_the_test, one_example, ten_of_one_class, many_examples, small_resnet,
)  # fmt: skip
