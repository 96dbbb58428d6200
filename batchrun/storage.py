"""Errors of the disk and of the database, as what they are for a person."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchrun.database import DatabaseError
from batchrun.errors import StorageError


@contextmanager
def storage_errors(home: Path) -> Iterator[None]:
    """Whatever fails inside is a StorageError: resumable, with the disk of `home` to look at."""
    try:
        yield
    except (OSError, DatabaseError) as error:
        raise StorageError(
            f"reading or writing failed: {str(error).splitlines()[0]}",
            f"Free or mend the disk of {home} and of the output; then submit again: what is finished is kept.",
        ) from error
