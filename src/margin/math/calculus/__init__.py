"""Derivatives of maps of several variables, and what they approximate."""
