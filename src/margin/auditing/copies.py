"""Models that cannot be copied: their weights are tensors that were computed from others and kept."""

from torch import Tensor, nn


def check_copyable(model: nn.Module) -> None:
    """Refuse a model that torch does not copy, as many questions must: one with a weight that it computes.

    Args:
        model: Any module.

    Raises:
        ValueError: It keeps such a weight; the message names it.
    """
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            # torch.nn.utils names what a weight is computed from so: pruning, weight normalization
            sources = {f"{key}_orig", f"{key}_g"} & set(module._parameters.keys())  # a list in a traced one
            if isinstance(value, Tensor) and (sources or not value.is_leaf):
                which = f"{name}.{key}".removeprefix(".")
                raise ValueError(
                    f"the weights of the model must be its parameters: {which} is computed from others and "
                    "kept; make it permanent (torch.nn.utils.prune.remove, remove_weight_norm), or use "
                    "torch.nn.utils.parametrizations"
                )
