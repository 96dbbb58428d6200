"""What runs cost, where they were bound and what to change: read from what runs have left, changing nothing."""
