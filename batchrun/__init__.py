"""batchrun: an offline batch summarization job runner."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchrun.api import plan as plan
    from batchrun.api import results as results
    from batchrun.api import resume as resume
    from batchrun.api import status as status
    from batchrun.api import submit as submit

__version__ = "0.1.0"
_FUNCTIONS = ("plan", "results", "resume", "status", "submit")


def __getattr__(name: str) -> Any:
    """The functions of `batchrun.api`, imported when they are asked for: `--help` waits for none of them."""
    if name in _FUNCTIONS:
        from batchrun import api

        return getattr(api, name)
    raise AttributeError(f"module 'batchrun' has no attribute {name!r}")
