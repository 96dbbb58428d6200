"""How a run speaks to whoever watches it. The command line implements it; a library caller need not."""

from batchrun.run_record import RunRecord


class Reporter:
    """Says nothing. Methods are called on the main thread and must not block."""

    def note(self, text: str) -> None:
        """Something worth knowing that is no error."""

    def planning(self, num_rows: int) -> None:
        """Rows read so far."""

    def running(self, record: RunRecord) -> None:
        """The run as it stands, about twice a second."""

    def finished(self) -> None:
        """No more progress is to come."""
