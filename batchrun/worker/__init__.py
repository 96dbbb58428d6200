"""Documents in, memo rows out: requests, admission, the engine's thread, and the collection of its completions."""
