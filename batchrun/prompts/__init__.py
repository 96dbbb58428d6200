"""Text to token ids and back, for planning and worker. No model, no transformers."""
