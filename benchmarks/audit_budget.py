"""What a default audit takes: wall seconds, report included, memory above the model's own, what it answers.

Each case is audited in a process of its own, and its row is written as soon as it is there; its first screen
goes to stderr. Margin's modules are compiled before, as those of an installed package are. Subjects are in
plain torch, or the catalog's own; the large ones are not trained, which changes nothing of what is asked.

    python -m benchmarks.audit_budget [CASE ...]
"""

import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.record import record

HERE = Path(__file__).parent.parent / "docs/results/auditing"
MOST_MIB = 1536
"""Peak memory, above what model and data take before the audit, that no default audit may exceed."""


class Block(nn.Module):
    """Two convolutions with batch normalization beside a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        same = stride == 1 and channels == out
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)
        self.last = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x) + self.shortcut(x))


class Reader(nn.Module):
    """A transformer over tokens, its mean read by a linear map."""

    def __init__(self, vocab: int, dim: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, layers), nn.Linear(dim, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens)).mean(1))


def trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        index = torch.randint(len(x), (min(len(x), 100),))
        optimizer.zero_grad()
        F.cross_entropy(model(x[index]), y[index]).backward()
        optimizer.step()
    return model.eval()


def iris():
    from sklearn.datasets import load_iris

    x, y = (torch.tensor(a) for a in load_iris(return_X_y=True))
    order = torch.randperm(150)
    x, y = x.float()[order], y[order]
    model = nn.Sequential(
        nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )  # fmt: skip
    return trained(model, x[50:], y[50:], 300), x, y, 50, (0.0, 8.0)


def lenet5():
    from sklearn.datasets import load_digits

    x, y = (torch.tensor(a) for a in load_digits(return_X_y=True))
    x = F.interpolate(x.float().reshape(-1, 1, 8, 8) / 16, size=(28, 28))
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip
    return trained(model, x[360:], y[360:], 300), x, y, 360, (0.0, 1.0)


def random_convnet():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(72, 10),
    )  # fmt: skip
    return model.eval(), torch.rand(1000, 1, 28, 28), torch.randint(10, (1000,)), 500, (0.0, 1.0)


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, out, stride), Block(out, out, 1)]
        channels = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model.eval(), torch.rand(2000, 3, 32, 32), torch.randint(10, (2000,)), 1000, (0.0, 1.0)


def mlp25():
    model = nn.Sequential(
        nn.Linear(784, 3500), nn.ReLU(), nn.Linear(3500, 3500), nn.ReLU(), nn.Linear(3500, 2800), nn.ReLU(),
        nn.Linear(2800, 10),
    )  # fmt: skip
    return model.eval(), torch.rand(3000, 784), torch.randint(10, (3000,)), 1000, (0.0, 1.0)


def transformer():
    model = Reader(1000, 180, 4, 10)
    return model.eval(), torch.randint(1000, (1000, 64)), torch.randint(10, (1000,)), 500, None


def many_examples():
    x = torch.randn(120_000, 20)
    y = (x @ torch.randn(20, 5) + torch.randn(120_000, 5)).argmax(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    return trained(model, x[100_000:], y[100_000:], 500), x, y, 100_000, (-8.0, 8.0)


def images(model: nn.Module):
    return model.eval(), torch.rand(2000, 3, 32, 32), torch.randint(10, (2000,)), 1000, (0.0, 1.0)


def vit_tiny():
    from margin.vision.transformers.vit import ViT

    return images(ViT(3, (32, 32), 10, patch=4, width=192, depth=12, heads=3))


def googlenet():
    from margin.vision.convnets.googlenet import GoogLeNet

    return images(GoogLeNet(3, (32, 32), 10))


def vgg11():
    from margin.vision.convnets.vgg import VGG

    return images(VGG(3, (32, 32), 10, depth=11, widths=(32, 64, 128, 256, 256), hidden=(256,), norm="batch"))


def unet512():
    from margin.vision.segmentation.unet import UNet

    model = UNet(3, 2, width=16, levels=4)
    return model.eval(), torch.rand(40, 3, 512, 512), torch.randint(2, (40, 512, 512)), 20, (0.0, 1.0)


class LongReader(nn.Module):
    """A GRU over a long sequence, its last state read by a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(8, 64, batch_first=True), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[0][:, -1])


def gru4000():
    return LongReader().eval(), torch.randn(400, 4000, 8), torch.randint(4, (400,)), 200, (-8.0, 8.0)


CASES = {
    "iris": (iris, "MLP of 3 layers on iris", 5),
    "lenet5": (lenet5, "LeNet-5 on digits of 28x28", 15),
    "random_convnet": (random_convnet, "random convolutional net on 28x28", 60),
    "resnet18": (resnet18, "ResNet-18, 11 million parameters, 1,000 images of 32x32", 120),
    "mlp25": (mlp25, "MLP of 25 million parameters, 1,000 held-out examples", 120),
    "transformer": (transformer, "transformer of 2 million parameters, 500 sequences of 64", 120),
    "vit_tiny": (vit_tiny, "ViT of width 192, depth 12, patches of 4, 1,000 images of 32x32", 120),
    "googlenet": (googlenet, "GoogLeNet of a quarter's width, 1,000 images of 32x32", 120),
    "vgg11": (vgg11, "VGG-11 of half its width, 1,000 images of 32x32", 120),
    "unet512": (unet512, "U-Net of 4 levels, segmentation of 20 images of 512x512", 120),
    "gru4000": (gru4000, "GRU of 64 units, 200 sequences of length 4,000", 120),
    "many_examples": (many_examples, "small MLP, 100,000 held-out examples", 60),
}


def measured(case: str) -> dict[str, object]:
    """The row of one case, in this process."""
    import margin

    torch.manual_seed(0)
    model, x, y, held, domain = CASES[case][0]()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    start, processor = time.perf_counter(), time.process_time()
    user = os.times().user
    audit = margin.audit(model, (x[:held], y[:held]), train=(x[held:], y[held:]), domain=domain)
    with tempfile.TemporaryDirectory() as out:
        audit.save(out)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    user = os.times().user - user
    print(audit, file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    skipped = [a.skipped for a in audit.answers if a.skipped and not a.skipped.endswith("--claims")]
    return {
        "case": case, "parameters": sum(p.numel() for p in model.parameters()), "seconds": round(seconds, 2),
        "processor seconds": round(processor, 2), "user seconds": round(user, 2), "peak MiB": round(peak),
        "findings": len(audit.findings),
        "of fewer examples": sum(bool(f.sample) for f in audit.findings.values()), "not asked": len(skipped),
        "broken": sum(bool(a.broken) for a in audit.answers), "threads": torch.get_num_threads(),
        "load average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main(names: list[str]) -> None:
    import margin

    compileall.compile_dir(Path(margin.__file__).parent, quiet=1)
    path = HERE / "budget.json"
    rows = {row["case"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    for name in names or CASES:
        words = [sys.executable, "-m", "benchmarks.audit_budget", "--in-process", name]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        rows[name] = json.loads(done.stdout.splitlines()[-1])
        print(rows[name], flush=True)
        known = [rows[case] for case in CASES if case in rows]
        record(
            "auditing/budget",
            title="A default audit: wall seconds with its report, and peak memory above model and data",
            figures=[figure for row in known for figure in figures_of(row)],
            rows=known,
        )


def figures_of(row: dict[str, object]) -> list[dict[str, object]]:
    _, words, most = CASES[row["case"]]
    return [
        {"what": f"{words}: seconds", "value": row["seconds"], "unit": "s", "target": f"<= {most}",
         "met": row["seconds"] <= most},
        {"what": f"{words}: peak memory", "value": row["peak MiB"], "unit": "MiB",
         "target": f"<= {MOST_MIB}", "met": row["peak MiB"] <= MOST_MIB},
    ]  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-process"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main(sys.argv[1:])
