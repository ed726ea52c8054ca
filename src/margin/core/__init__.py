"""The frame: batches, tasks, findings, the catalog of rows, the options of a training."""
