"""What a run tells of itself: the batch completion metrics, in one record a run."""
