"""Convex functions, Lipschitz constants, multipliers, landscapes to descend on."""
