"""How much a class of functions can fit: growth, the VC dimension, Rademacher complexity."""
