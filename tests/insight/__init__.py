"""Insight: what is read from what runs have left."""
