"""Which claims are asked, of what, for how long, and what comes back."""
