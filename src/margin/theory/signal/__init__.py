"""How signals and gradients pass the layers."""
