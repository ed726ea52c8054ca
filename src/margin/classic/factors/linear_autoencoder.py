"""The linear autoencoder (Baldi and Hornik 1989): PCA's subspace, found by descent."""

from jaxtyping import Float
from torch import Tensor, nn


class LinearAutoencoder(nn.Module):
    """Codes z = E x and reconstructions D z + b, trained to least squared error.

    At every minimum D E is the projector onto the top principal subspace and b completes the mean; every
    other critical point is a saddle. D and E alone are determined up to an invertible m x m matrix only, so
    the rows of E are not the eigenvectors.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Length m of a code, from 1 to d.

    Raises:
        ValueError: The length of a code is out of range.

    Reference:
        Bourlard and Kamp 1988, Section 3; Baldi and Hornik 1989, Facts 1-4.
    """

    def __init__(self, in_features: int, *, components: int = 2) -> None:
        super().__init__()
        if not 1 <= components <= in_features:
            raise ValueError(
                f"components must be from 1 to the number of features, {in_features}: got {components}"
            )
        self.encoder = nn.Linear(in_features, components, bias=False)
        self.decoder = nn.Linear(components, in_features)

    def encode(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The code of each row."""
        return self.encoder(x.flatten(1))

    def decode(self, codes: Float[Tensor, "batch components"]) -> Float[Tensor, "batch dim"]:
        """The row that a code stands for."""
        return self.decoder(codes)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The code of each row."""
        return self.encode(x)
