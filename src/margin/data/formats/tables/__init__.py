"""Tables of rows and columns."""
