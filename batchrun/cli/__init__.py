"""The command line: one file a command; the only place that knows click, exit codes and terminals."""
