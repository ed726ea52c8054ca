"""Trainings against perturbations."""

from margin.core.catalog import Rule

# fmt: off

RULES: tuple[Rule, ...] = (
    Rule("robust/adversarial_training", ".adversarial:adversarial_training",
        "Descent on the loss at inputs that projected ascent has moved to raise it",
        "Madry et al. (2018), Equation 2.1"),
)
# fmt: on
