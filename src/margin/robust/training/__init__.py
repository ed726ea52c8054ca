"""Trainings against perturbations."""

from margin.core.catalog import Rule

# All end with the weights of the last step: the clean validation loss says nothing of robustness.
UNUSED = ("patience",)

# fmt: off

RULES: tuple[Rule, ...] = (
    Rule("robust/pgd", ".adversarial:adversarial_training",
        "Adversarial training: descent on the loss at inputs that projected ascent has moved to raise it",
        "Madry et al. (2018), Equation 2.1", last=True, unused=UNUSED,
        measure=".adversarial:pgd_accuracy",
        formerly=("robust/adversarial_training",), covers=("adv.training",)),
    Rule("robust/fast", ".adversarial:fast",
        "Adversarial training by one signed step from a random point of the ball",
        "Wong, Rice & Kolter (2020), Algorithm 3", last=True, unused=UNUSED,
        measure=".adversarial:pgd_accuracy",
        covers=("adv.training", "adv.fgsm")),
    Rule("robust/trades", ".adversarial:trades",
        "Descent on the clean loss and on the divergence of the answers in a ball",
        "Zhang et al. (2019), Equation 5", last=True, unused=UNUSED,
        measure=".adversarial:pgd_accuracy",
        covers=("adv.training",)),
    Rule("robust/ibp", ".certified:ibp",
        "Descent on the clean loss and on that of the worst logits within interval bounds, eps growing",
        "Gowal et al. (2018), Equation 10", last=True, unused=UNUSED,
        measure=".certified:certified_accuracy",
        covers=("adv.ibp",)),
    Rule("robust/smoothing", ".certified:smoothing",
        "Descent on the loss at inputs with Gaussian noise, of a classifier that is to be smoothed",
        "Cohen, Rosenfeld & Kolter (2019), Section 3.3", last=True, unused=UNUSED,
        measure=".certified:noisy_accuracy",
        covers=("adv.smoothing",)),
)
# fmt: on
