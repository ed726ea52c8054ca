"""From a name to a run, and what one does with it."""
