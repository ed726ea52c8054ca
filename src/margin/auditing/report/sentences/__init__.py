"""What an audit says of a model in at most ten sentences: the answer, before the evidence."""
