"""Laws, moments, inequalities and information."""
