"""Many processes: their start, what they tell each other, shares of the weights."""
