"""`python -m batchrun` is `batchrun`."""

from batchrun.cli.main import run

run()
