"""The engines: one contract for all, and what is each one's own."""
