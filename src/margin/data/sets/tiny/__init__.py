"""The smallest sets on which entries are tried."""
