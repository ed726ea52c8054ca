"""Modules as users of PyTorch write them: of no package, without a word about this one."""

import typing

import torch
from torch import nn
from torch.nn import functional as F


class Classes(nn.Module):
    """Two layers with a batch normalization.

    Args:
        width: Hidden units.
    """

    def __init__(self, in_features, num_classes, width=16, dropout=0.1, activation=nn.ReLU):
        super().__init__()
        self.body = nn.Linear(in_features, width)
        self.norm = nn.BatchNorm1d(width)
        self.activation = activation()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.dropout(self.activation(self.norm(self.body(x)))))


class Values(nn.Module):
    def __init__(self, in_features: int, *, width: int = 8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_features, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x).squeeze(-1)


class InColumn(Values):
    def forward(self, x):
        return self.layers(x)


class SeveralValues(nn.Module):
    def __init__(self, in_features, outputs=2):
        super().__init__()
        self.layer = nn.Linear(in_features, outputs)

    def forward(self, x):
        return self.layer(x)


class Tokens(nn.Module):
    def __init__(self, vocab_size, dim=8):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.cell = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        return self.head(self.cell(self.embedding(ids))[0])


class Images(nn.Module):
    def __init__(self, channels, image_size, num_classes):
        super().__init__()
        self.convolution = nn.Conv2d(channels, 4, 3, padding=1)
        self.head = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.head(F.relu(self.convolution(x)).mean((2, 3)))


class Autoencoder(nn.Module):
    def __init__(self, in_features, code=2):
        super().__init__()
        self.encoder = nn.Linear(in_features, code)
        self.decoder = nn.Linear(code, in_features)

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


class Counting(nn.Module):
    """A module that writes into a buffer as it trains."""

    def __init__(self, in_features, num_classes):
        super().__init__()
        self.layer = nn.Linear(in_features, num_classes)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(in_features))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.layer(x - self.mean)


class Sized(nn.Module):
    def __init__(self, in_features, num_classes, width=8):
        super().__init__()
        self.body = nn.Linear(in_features, width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


class HandedOn(Sized):
    """Hands on what it is given, as subclasses do."""

    def __init__(self, *args, extra=1, **kwargs):
        super().__init__(*args, **kwargs)
        self.extra = extra


class BehindAStar(Sized):
    def __init__(self, *, in_features, num_classes, width=4):
        super().__init__(in_features, num_classes, width)


class ByPlace(Sized):
    def __init__(self, in_features, num_classes, /, width=4):
        super().__init__(in_features, num_classes, width)


class Squeezed(Values):
    def forward(self, x):
        return self.layers(x).squeeze()


class Linear(nn.Module):
    def __init__(
        self,
        in_features,
        num_classes,
        sizes: typing.Tuple[int, int] = (3, 4),  # noqa: UP006
        nested=((1, 2), (3,)),
    ):
        super().__init__()
        if not (isinstance(sizes, tuple) and isinstance(nested, tuple) and isinstance(nested[0], tuple)):
            raise TypeError("a tuple has become a list")
        self.layer = nn.Linear(in_features, num_classes)

    def forward(self, x):
        return self.layer(x)


class RaisingInTraining(Linear):
    def forward(self, x):
        print("forward")
        if self.training:
            raise RuntimeError("only in training")
        return super().forward(x)


class Printing(Linear):
    def forward(self, x):
        print("forward")
        return super().forward(x)


class Lazy(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layer = nn.LazyLinear(num_classes)

    def forward(self, x):
        return self.layer(x)


class OneLogit(Values):
    pass


class WithCode(Autoencoder):
    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code


class Focal(nn.Module):
    """The focal loss of a batch; ``gamma`` is kept, ``hidden`` is not."""

    def __init__(self, gamma=2.0, hidden=None):
        super().__init__()
        self.gamma = gamma
        if hidden is None:
            self.hidden = None

    def forward(self, outputs, labels):
        log_p = outputs.log_softmax(1).gather(1, labels[:, None]).squeeze(1)
        return (-((1 - log_p.exp()) ** self.gamma) * log_p).mean()


def over_the_batch(outputs, labels):
    """A mean over the batch that is as long as two examples of two classes."""
    return (outputs.softmax(1) - F.one_hot(labels, outputs.shape[1])).square().mean(0)


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def foreign(n_in, n_out):
    return nn.Linear(n_in, n_out)


def no_module(in_features):
    return in_features


class Raising(nn.Module):
    def __init__(self, in_features):
        super().__init__()
        raise RuntimeError("no luck today")


def absolute(outputs, targets):
    """The mean absolute error of a batch."""
    return (outputs - targets).abs().mean()


def summed(outputs, targets):
    """A loss that is no mean of examples."""
    return (outputs - targets).abs().sum()


class Uneven(nn.CrossEntropyLoss):
    def __init__(self):
        super().__init__(weight=torch.tensor([1.0, 5.0, 0.2]))
