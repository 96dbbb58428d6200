"""One streaming pass from corpus to spool: tokens, keys, buckets; and what is left to run. Loads no model."""
