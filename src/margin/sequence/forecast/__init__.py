"""Forecasts of series, and their back-test."""
