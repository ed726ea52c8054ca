"""Makes ``transformers_resnet.safetensors``: two small ResNets of transformers, a question and their answers.

Run where transformers is installed: ``python -m tests.vision.convnets.transformers_resnet``.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

FILE = Path(__file__).with_suffix(".safetensors")
CONFIGS: dict[str, dict[str, Any]] = {
    "basic": {
        "layer_type": "basic",
        "embedding_size": 6,
        "hidden_sizes": [6, 10],
        "depths": [1, 2],
        "num_channels": 3,
    },
    "bottleneck": {
        "layer_type": "bottleneck",
        "embedding_size": 4,
        "hidden_sizes": [16, 24],
        "depths": [2, 1],
        "num_channels": 1,
    },
}
CLASSES = 5


def asked(config: dict[str, Any]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The weights of a network of transformers drawn by chance, images, and its logits."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(**config, num_labels=CLASSES)).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    x = torch.randn(2, config["num_channels"], 30, 41)
    with torch.no_grad():
        return model.state_dict(), x, model(x).logits


def main() -> None:
    tensors = {}
    for kind, config in CONFIGS.items():
        weights, x, logits = asked(config)
        tensors |= {f"{kind}.{name}": tensor for name, tensor in weights.items()}
        tensors |= {f"{kind}/inputs": x, f"{kind}/logits": logits}
    save_file(tensors, FILE, {"configs": json.dumps(CONFIGS)})


if __name__ == "__main__":
    main()
