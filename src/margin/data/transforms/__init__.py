"""What is done to an example before a model sees it."""
