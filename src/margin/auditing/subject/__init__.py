"""What is audited: a run, a module, a user's data."""
