"""Codes and what is restored from them, variational ones too."""
