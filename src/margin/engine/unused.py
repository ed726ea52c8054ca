"""Options that would have no effect are refused: what a step, a rule or other options do not use."""

from collections.abc import Iterator, Mapping
from typing import Any

from margin.core.catalog import Entry, Rule, data_parameters
from margin.core.hints import flag
from margin.core.options import Training
from margin.engine.objectives import can_scale

OF_GRADIENTS = (
    "init",
    "init_scale",
    "init_from",
    "freeze",
    "optimizer",
    "lr",
    "layer_decay",
    "optimizer_options",
    "decay_norms",
    "schedule",
    "schedule_options",
    "warmup",
    "average",
    "average_start",
)
"""What only a model trained by an optimizer uses. An exact solve forgets the weights that it begins with, and
the theorems of a mistake rule begin at 0."""

OF_OBJECTIVE = ("mix", "mix_alpha", "label_smoothing", "confusion", "class_weight")
"""What changes the objective that a step minimizes."""

OF_DESCENT = ("clip", "accumulate")
"""How a loss moves an optimizer."""

OF_OTHERS: Mapping[str, str] = {
    "init_scale": "init",
    "mix_alpha": "mix",
    "average_start": "average",
    "pacing": "curriculum",
    "pacing_start": "curriculum",
    "pacing_end": "curriculum",
}
"""Options that say how another one does, and that other one."""


def refuse_unused(
    entry: Entry, rule: Rule | None, factory: Any, step: Mapping[str, Any], training: Training
) -> None:
    """Refuse options that differ from the entry's defaults and that nothing would look at.

    Args:
        entry: Whose model is trained.
        rule: Whose step is taken in place of the entry's own.
        factory: The factory of the step.
        step: The options of the step.
        training: The resolved options.

    Raises:
        ValueError: There is one; the message names the first.
    """
    base = Training().over(entry.defaults)
    changed = [name for name, value in training.as_json().items() if value != getattr(base, name)]
    found = {name: why for name, why in _unused(entry, rule, factory, step, training) if name in changed}
    for name in changed:
        if name in found:
            raise ValueError(f"{found[name]}: leave out {flag(name)}")


def _unused(
    entry: Entry, rule: Rule | None, factory: Any, step: Mapping[str, Any], training: Training
) -> Iterator[tuple[str, str]]:
    """Each option without effect, and why it has none."""
    what = f"the rule {rule.name}" if rule else f"the step of {entry.name}"
    if not entry.optimizers:
        yield from ((name, f"{entry.name} is not trained by gradients") for name in OF_GRADIENTS)
    if any(entry.optimizers):
        yield "compile", f"{what} asks for parts of the model, not for its outputs"
    if "objective" not in data_parameters(factory):
        yield from ((name, f"{what} asks for no loss that {name} could change") for name in OF_OBJECTIVE)
        if training.precision == "bfloat16":
            yield "precision", f"{what} asks for no loss that bfloat16 could compute"
    if "descend" not in data_parameters(factory):
        yield from ((name, f"{what} moves along no gradient") for name in OF_DESCENT)
    if rule:
        yield from ((name, f"{what} has no use for {name}") for name in rule.unused)
        for option, replaced in rule.replaced.items():
            if step.get(option) is not None:
                yield from ((name, f"{option} of {what} takes the place of {name}") for name in replaced)
    if not can_scale(entry):
        yield "scale_targets", f"{entry.name} learns no values by gradients of their squared error"
    for name, other in OF_OTHERS.items():
        if getattr(training, other) in (None, "", "none", 0.0):
            yield name, f"{name} is an option of {other}, which is not given"
