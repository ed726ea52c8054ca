"""Hidden classes, factors, features and units."""
