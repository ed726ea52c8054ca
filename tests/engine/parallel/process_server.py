"""Trainings by two processes and by one, in one group; what they left is compared by test_processes.

``python process_server.py DIRECTORY`` writes ``DIRECTORY/by-1-NAME`` (in this process) and
``DIRECTORY/by-2-NAME`` (by two), and the numbers that each process measured.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.parallel import rule_server
from margin.core.catalog import completed, models, resolve, user_options
from margin.core.options import Training
from margin.core.tasks import CLASSES, VALUES
from margin.data.examples import Arrays, Data, InOrder, Shuffled
from margin.engine.evaluation import evaluate
from margin.engine.loop import GradientUpdate, Risk, State, descent, fit, mean_loss
from margin.engine.parallel.launching import launch
from margin.engine.parallel.processes import shard, wait, world
from margin.engine.plan import cut_of, objective_of
from margin.nn.preprocessed import Preprocessed
from margin.runs.training import finish, prepare, reopen
from margin.testing import built, first_batch, tiny_data
from quick import quick
from smaller import SMALLER

# 37 does not divide the examples, and its remainders do not divide by two
TRAINING = Training(
    max_steps=8,
    batch_size=37,
    precision="float64",
    clip=0.5,
    average=0.9,
    schedule="cosine",
    warmup=0,
    evaluate_every=4,
    optimizer_options={"weight_decay": 0.1},
    seed=5,
)
NO_OPTIONS = {"options": {}, "step": {}, "rule": ""}
STEPS = 7
DIVIDED = "divided.json"
"""The names of the entries that were trained."""


def weighted() -> Data:
    """Moons whose examples weigh 0, 1, 2 or 3."""
    data: Data = resolve("margin.data.sets.tiny.tables:moons")()
    splits = {
        name: Arrays(part.inputs, part.targets, (torch.arange(len(part)) % 4).float())
        for name, part in data.splits.items()
    }
    return Data(name="weighted", splits=splits, spec=data.spec, encoding=data.encoding)


def divisible() -> list[str]:
    """The entries whose training two processes repeat to the digit, where nothing is dropped.

    Batch normalization over several needs CUDA, and noise each process draws for itself.
    """
    return [name for name in parallel() if not normalizes(name) and not draws(name)]


def parallel() -> list[str]:
    """The entries whose batches may be divided between processes."""
    return [name for name, entry in models().items() if entry.parallel]


def options_of(name: str) -> dict[str, Any]:
    """The options under which an entry's model drops nothing, and the largest are small."""
    known = user_options(resolve(models()[name].build))
    return {option: 0.0 for option in known if "dropout" in option} | SMALLER.get(name, {})


def made(name: str) -> nn.Module:
    """An entry's model, its weights drawn from one seed."""
    return built(models()[name], tiny(name), options=options_of(name))


def draws(name: str) -> bool:
    """Whether an entry's loss is another under another seed while it trains, or its batch is."""
    entry, losses = models()[name], []
    if entry.examples:
        examples = cut_of(entry, completed(resolve(entry.build), options_of(name)))(
            tiny(name).splits["train"]
        )
        index = torch.arange(min(4, len(examples)))
        first, other = (examples.take(index, torch.Generator().manual_seed(seed)) for seed in (0, 1))
        if any(x.shape != y.shape or not x.equal(y) for x, y in zip(first.inputs, other.inputs, strict=True)):
            return True
    model, batch = Preprocessed(nn.Identity(), made(name)), first_batch(entry, tiny(name))
    objective = objective_of(entry, resolve(entry.task))
    if objective is None:
        return True
    for seed in (0, 1):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            losses.append(objective(model, batch, torch.Generator().manual_seed(seed)))
    return not torch.equal(*losses)


def normalizes(name: str) -> bool:
    """Whether an entry's model normalizes over the batch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in made(name).modules())


def tiny(name: str) -> Data:
    return tiny_data(models()[name])


def cases(names: list[str]) -> dict[str, tuple[str, Data, dict]]:
    """Name -> entry, data, changed options; each is trained by one process and by two."""
    found = {name.replace("/", "-"): (name, tiny(name), {}) for name in names}
    moons = tiny("feedforward/mlp")
    return found | {
        "pieces": ("feedforward/mlp", moons, {"accumulate": 3}),
        "fewer-than-processes": ("feedforward/mlp", moons, {"batch_size": 1}),
        "weighted": ("feedforward/mlp", weighted(), {}),
        "fsdp": ("feedforward/mlp", moons, {"strategy": "fsdp"}),
        "fsdp-nested": ("feedforward/residual_mlp", moons, {"strategy": "fsdp"}),
        "fsdp-images": ("vision/lenet5", tiny("vision/lenet5"), {"strategy": "fsdp"}),
    }


def train_all(directory: Path) -> None:
    size, divided = world().size, directory / DIVIDED
    if size == 1:  # comes first: a second of every entry's model, which two more processes need not spend
        divided.write_text(json.dumps(divisible()))
    for name, (model, data, changed) in cases(json.loads(divided.read_text())).items():
        options = Training(**{**TRAINING.as_json(), **changed, "processes": size})
        arguments = {**NO_OPTIONS, "options": options_of(model)}
        finish(prepare(model, data, arguments, options, directory / f"by-{size}-{name}"))
        wait()


def resume_all(directory: Path) -> None:
    """Go on, by one process, with what two began, and the other way round."""
    for strategy in ("ddp", "fsdp"):
        begun = directory / f"begun-by-{3 - world().size}-{strategy}"
        options = Training(max_steps=12, processes=world().size)
        finish(reopen(begun, tiny("feedforward/mlp"), options))
        wait()


def begin(directory: Path) -> None:
    size = world().size
    for strategy in ("ddp", "fsdp"):
        options = {**TRAINING.as_json(), "max_steps": STEPS, "strategy": strategy, "processes": size}
        path = directory / f"begun-by-{size}-{strategy}"
        # the schedule looks at the end: keep it constant, as it would not know of the resumption
        finish(
            prepare(
                "mlp",
                tiny("feedforward/mlp"),
                NO_OPTIONS,
                Training(**options | {"schedule": "constant"}),
                path,
            )
        )
        wait()


def bare(objective_step: Callable, weight: torch.Tensor | None = None) -> list[float]:
    """Weights after four steps of a linear model on 11 examples in batches of 4, 4, 3."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1, dtype=torch.float64)
    x = torch.randn(11, 3, dtype=torch.float64)
    examples = Arrays((x,), x.sum(1, keepdim=True), weight)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})
    batches = Shuffled(examples, 4, seed=0, share=world())
    fit(state, batches, objective_step, max_steps=4)
    return [float(w) for p in model.parameters() for w in p.detach().flatten()]


def by_hand(state: State, batch) -> dict:
    """A step that asks no objective: its gradients are averaged by the descent itself."""
    losses = (state.model(*batch.inputs) - batch.targets).square()
    return GradientUpdate(clip=0.3)(state, mean_loss(losses, batch.weight))


def evaluated() -> dict[str, float]:
    """The mean over 1,003 examples of weights 0, 1, 2: the 512 of the first batch, the 491 of the last."""
    x = torch.arange(1003.0, dtype=torch.float64)
    examples = Arrays((x,), torch.zeros(1003, dtype=torch.float64), x % 3)
    batches = InOrder(examples, 512, dtype=torch.float64, share=world())
    return evaluate(nn.Identity(), batches, VALUES, Risk(VALUES))


def first_losses(count: int = 200) -> list[float]:
    """The loss of the first step under dropout, for many seeds: what is drawn has the law of one process."""
    torch.manual_seed(1)
    x = torch.randn(8, 16)
    examples = Arrays((x,), torch.arange(8) % 2)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(16, 2))
    found = []
    for seed in range(count):
        state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1e-12)}, seed=seed)
        step = descent(Risk(CLASSES), GradientUpdate())
        fit(state, Shuffled(examples, 8, seed=0, share=world()), step, max_steps=1, hooks=[])
        found.append(float(state.tally["loss"]))
    return found


def masks() -> list[float]:
    """What dropout leaves of eight ones in the first step of this process."""
    kept: list[float] = []

    def step(state: State, batch) -> dict:
        kept.extend(nn.functional.dropout(torch.ones(64)).tolist())
        return {}

    model = nn.Linear(1, 1)
    fit(State({"model": model}), lambda k: None, step, max_steps=1)
    return kept


def sharded_norm() -> float:
    """The norm of a sharded module's gradient of sum(w)^2 / 2, w = 1 .. 6."""
    from margin.engine.loop import total_norm

    model = nn.Linear(6, 1, bias=False, dtype=torch.float64)
    model.weight.data = torch.arange(1.0, 7.0, dtype=torch.float64)[None]
    if world().size > 1:
        shard(model)
    loss = model(torch.ones(1, 6, dtype=torch.float64)).square().sum() / 2
    loss.backward()
    return total_norm([p.grad for p in model.parameters()])


def numbers() -> dict:
    weight = torch.tensor([0.0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 5], dtype=torch.float64)
    return {
        "by hand": bare(by_hand),
        "by hand, weighted": bare(by_hand, weight),
        "evaluated": evaluated(),
        "first losses": first_losses(),
        "masks": masks(),
        "sharded norm": sharded_norm(),
    }


def work(stop: Callable[[], bool], directory: Path) -> None:
    torch.set_num_threads(1)
    with quick():
        train_all(directory)
        begin(directory)
        path = directory / f"numbers-{world().size}-{world().rank}.json"
        path.write_text(json.dumps(numbers()))
        rule_server.train_all(directory / "rules")
        if world().size > 1:
            rule_server.refuse_all(directory / "rules")
            resume_all(directory)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    work(lambda: False, target)
    launch(work, 2, "cpu", (target,))
    resume_all(target)
