"""What sums of ridges approximate, and how well."""
