"""Trainings under the engine's rules by one process and by two, a part of process_server."""

from pathlib import Path

from margin.core.catalog import models, resolve
from margin.core.options import Training
from margin.engine.parallel.processes import wait, world
from margin.runs.training import finish, prepare

STEPS = {
    "sam": {"rho": 0.1},
    "gradient_flow": {"time": 0.2},
    "entropy_sgd": {"inner": 3, "noise": 0.1},
    "continuation": {"sigma": 0.05},
}
OPTIONS = {
    "max_steps": 7,
    "batch_size": 37,
    "precision": "float64",
    "seed": 5,
    "evaluate_every": 3,
}
RATE = {rule: {"lr": 0.05} for rule in ("sam", "entropy_sgd", "continuation")}
CASES = {**{name: (name, {}) for name in STEPS}, "sam-fsdp": ("sam", {"strategy": "fsdp"})}


def train_all(directory: Path) -> None:
    data, size = resolve(models()["feedforward/mlp"].tiny)(), world().size
    for case, (rule, changed) in CASES.items():
        clip = {} if rule == "gradient_flow" else {"clip": 0.5}
        rate = RATE.get(rule, {})
        training = Training(**OPTIONS, **changed, **clip, **rate, processes=size)
        arguments = {"options": {}, "step": STEPS[rule], "rule": rule}
        finish(prepare("feedforward/mlp", data, arguments, training, directory / f"by-{size}-{case}"))
        wait()


def refused(rule: str, changed: dict, directory: Path) -> str:
    data = resolve(models()["feedforward/mlp"].tiny)()
    try:
        arguments = {"options": {}, "step": {}, "rule": rule}
        prepare("feedforward/mlp", data, arguments, Training(**OPTIONS, **changed, processes=2), directory)
    except ValueError as error:
        return str(error)
    return ""


def refuse_all(directory: Path) -> None:
    messages = [refused("newton", {}, directory / "newton")]
    messages += [refused(rule, {"strategy": "fsdp"}, directory / rule) for rule in list(STEPS)[1:]]
    if world().rank == 0:
        (directory / "refused").write_text("\n".join(messages))
