"""What predictions are worth: risk, margins, calibration, confusion, ranking, residuals."""
