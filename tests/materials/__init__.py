"""What demos, tests and benchmarks work on: a small real model, a tiny random one, and a corpus of READMEs."""
