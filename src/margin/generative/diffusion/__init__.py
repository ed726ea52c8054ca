"""Diffusion and flow matching: from noise to data by small steps."""
