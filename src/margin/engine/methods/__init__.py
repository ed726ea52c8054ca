"""Steps that any entry with a loss can take instead of its own."""
