"""How far two samples are apart."""
