"""batchrun: an offline batch summarization job runner."""

__version__ = "0.1.0"
