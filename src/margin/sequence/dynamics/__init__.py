"""What is asked of any recurrence: contraction, spectrum, gradients by lag, padding."""
