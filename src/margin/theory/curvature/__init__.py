"""The second derivative of the training loss, and what is read off it."""
