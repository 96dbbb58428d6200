"""The memo table on disk, and the output made from it. Nobody else reads or writes segments."""
