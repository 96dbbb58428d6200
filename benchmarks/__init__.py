"""Measurements: each script prints a table with what it ran on; run from the root of the checkout."""
