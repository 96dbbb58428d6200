"""The runbook's blocks, from the file that is installed beside the code."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Block:
    """`steps`: threshold, action, how to see that it worked, when to roll back; each with its text. Code is in backticks."""

    name: str
    about: str
    steps: tuple[tuple[str, str], ...]


def path() -> Path:
    """In an installed package beside the code, in a checkout in `docs/`."""
    package = Path(__file__).parent.parent
    installed = package / "runbook.md"
    return installed if installed.exists() else package.parent / "docs" / "runbook.md"


def blocks(text: str) -> dict[str, str]:
    """Each block by its anchor, in the file's order."""
    pieces = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    bodies = (re.split(r"^# ", body, flags=re.MULTILINE)[0].strip() for body in pieces[2::2])
    return dict(zip(pieces[1::2], bodies, strict=True))


def block_of(name: str, body: str) -> Block:
    """A block in its parts, each on one line."""
    about, *steps = re.split(r"^- \*\*(.+?):\*\* ", body, flags=re.MULTILINE)
    told = [" ".join(text.split()) for text in (about, *steps)]
    return Block(name=name, about=told[0], steps=tuple(zip(told[1::2], told[2::2], strict=True)))
