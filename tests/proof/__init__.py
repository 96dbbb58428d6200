"""Long proofs: `make proof`."""
