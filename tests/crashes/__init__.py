"""Crashes at every point, and losses of power at every point: `python -m tests.crashes FOLDER MODEL`."""
