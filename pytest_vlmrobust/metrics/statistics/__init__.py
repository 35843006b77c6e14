"""Uncertainty: intervals, bounds and counts behind the estimates. Arrays in, arrays out; nothing here knows a metric."""
