"""DeepFool's relative perturbation on MNIST, and FGSM at eps .25: LeNet, FC500-150-10, softmax, maxout.

Moosavi-Dezfooli et al. (2016), Table 1: the mean of ||r||_2 / ||x||_2 on test images, of DeepFool and of the
shortest signed step that breaks 90 % of them. Goodfellow et al. (2015), Sections 3 to 5: the error, and the
mean confidence in the wrong class, after a signed step of .25 for pixels in [0, 1]. No clipping, as there.
Networks are trained for the stated passes over the 60,000 images, judged on the first --images test images.

    python -m experiments.robust_deepfool
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.data.open import open_data
from margin.engine.loop import risk
from margin.robust.attacks.gradient import fgsm
from margin.robust.attacks.minimal import deepfool
from margin.robust.attacks.threat_models import Norm, Threat
from margin.theory.prediction.risk import clopper_pearson

GOODFELLOW = "Goodfellow et al. 2015"
MOOSAVI = "Moosavi-Dezfooli et al. 2016, Table 1"
RHO = {"LeNet": (0.20, 1.0), "FC500-150-10": (0.11, 0.39)}
ERROR = {"softmax": (0.999, 0.793), "maxout": (0.894, 0.976), "maxout, adversarially trained": (0.179, 0.814)}
EPS, ROBUST_EPS, PASSES = 0.25, 0.25, 3


class Maxout(nn.Module):
    """The largest of several affine functions (Goodfellow et al., 2013)."""

    def __init__(self, inputs: int, outputs: int, pieces: int = 5) -> None:
        super().__init__()
        self.linear, self.pieces = nn.Linear(inputs, outputs * pieces), pieces

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).unflatten(1, (-1, self.pieces)).amax(-1)


def networks() -> dict[str, nn.Module]:
    def maxout() -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.2),
            Maxout(784, 240),
            nn.Dropout(0.5),
            Maxout(240, 240),
            nn.Dropout(0.5),
            nn.Linear(240, 10),
        )

    torch.manual_seed(0)
    lenet = nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
    )
    dense = [nn.Flatten(), nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 150), nn.ReLU(), nn.Linear(150, 10)]
    return {
        "LeNet": lenet,
        "FC500-150-10": nn.Sequential(*dense),
        "softmax": nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
        "maxout": maxout(),
        "maxout, adversarially trained": maxout(),
    }


def trained(model: nn.Module, x: Tensor, y: Tensor, passes: int, *, robust: bool) -> nn.Module:
    """The network after Adam; where robust, on half the loss at the input and half after a signed step."""
    generator, optimizer = Generator().manual_seed(0), torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(passes):
        for index in torch.randperm(len(x), generator=generator).split(100):
            a, b = x[index], y[index]
            model.train()
            loss = F.cross_entropy(model(a), b)
            if robust:
                moved = a.clone().requires_grad_()
                (slope,) = torch.autograd.grad(F.cross_entropy(model(moved), b), moved)
                loss = (loss + F.cross_entropy(model(a + ROBUST_EPS * slope.sign()), b)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def free(eps: float, norm: Norm) -> Threat:
    """A ball of which no domain cuts anything."""
    return Threat(Domain(torch.tensor(-1e4), torch.tensor(1e4)), eps, norm)


@torch.no_grad()
def relative(model: nn.Module, batch: Batch) -> tuple[float, float]:
    """Means of ||r||_2 / ||x||_2: of DeepFool, and of the signed step that breaks 90 %."""
    x = batch.inputs[0]
    right = model(x).argmax(1) == batch.targets
    batch, x = Batch((x[right],), batch.targets[right]), x[right]
    found = deepfool(model, batch, CLASSES, free(1e3, "l2"))
    size = x.flatten(1).norm(dim=1).double()
    rho = (found.distance / size)[found.broken].mean().item()
    low, high = 0.0, 1.0
    for _ in range(12):
        eps = (low + high) / 2
        y = fgsm(model, batch, risk(CLASSES), free(eps, "linf"))
        share = (model(y).argmax(1) != batch.targets).double().mean()
        low, high = (low, eps) if share >= 0.9 else (eps, high)
    return rho, (high * x[0].numel() ** 0.5 / size).mean().item()


@torch.no_grad()
def stepped(model: nn.Module, batch: Batch) -> tuple[int, float]:
    """How many images are wrong after a signed step of .25, and how sure the model is of these."""
    scores = model(fgsm(model, batch, risk(CLASSES), free(EPS, "linf")))
    wrong = scores.argmax(1) != batch.targets
    return int(wrong.sum()), scores.softmax(1).amax(1)[wrong].mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=PASSES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data("mnist", {})
    x, y = data.splits["train"].inputs[0].float() / 255, data.splits["train"].targets
    held, count, rows = data.splits["test"], arguments.images, []
    batch = Batch((held.inputs[0][:count].float() / 255,), held.targets[:count])
    for name, model in networks().items():
        model = trained(model, x, y, arguments.passes, robust="adversarially" in name)
        with torch.no_grad():
            wrong = int((model(batch.inputs[0]).argmax(1) != batch.targets).sum())
        rows.append(figure(f"{name}: test error", wrong / count, clopper_pearson(wrong, count)))
        if name in RHO:
            for what, value, published in zip(
                ("DeepFool", "FGSM"), relative(model, batch), RHO[name], strict=True
            ):
                told = f"{name}: mean ||r|| / ||x|| of {what}"
                rows.append(figure(told, value, published=f"{published} ({MOOSAVI})"))
        if name in ERROR:
            broken, sure = stepped(model, batch)
            error, confidence = ERROR[name]
            told = f"{name}: error after a signed step of {EPS}"
            interval = clopper_pearson(broken, count)
            rows.append(figure(told, broken / count, interval, f"{error} ({GOODFELLOW})"))
            rows.append(
                figure(f"{name}: mean confidence where wrong", sure, (), f"{confidence} ({GOODFELLOW})")
            )
        print(rows[-3:], flush=True)
    record(
        "robust/deepfool",
        title=f"DeepFool's relative perturbation, FGSM at {EPS}: MNIST, {arguments.passes} passes",
        images=count,
        figures=rows,
    )


def figure(
    what: str, value: float, interval: tuple[float, ...] = (), published: str = ""
) -> dict[str, object]:
    row: dict[str, object] = {"what": what, "value": round(value, 4), "unit": "share"}
    row |= {"interval": [round(end, 4) for end in interval]} if interval else {}
    return row | ({"published": published} if published else {})


if __name__ == "__main__":
    main()
