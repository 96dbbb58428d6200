"""batchrun inside the tools that schedule it."""
