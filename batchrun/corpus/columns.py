"""Which column is the text and which the id: by option, by spec, or by convention; never by a guess."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from batchrun.errors import CorpusError

TEXT_NAMES = ("text", "body", "content")
ID_NAMES = ("id", "doc_id")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns to read. `id` None: the row number is the id."""

    id: str | None
    text: str
    kept: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Every column to read, once."""
        return list(dict.fromkeys([self.text, *([self.id] if self.id else []), *self.kept]))

    def __str__(self) -> str:
        return f"text column {self.text!r}, " + (
            f"id column {self.id!r}" if self.id else "row numbers as ids"
        )


def choose(
    source: str,
    known: Mapping[str, str],
    *,
    text: str | None,
    id: str | None,
    kept: Sequence[str] = (),
    own: Collection[str] | None = None,
) -> Columns:
    """The columns of `source`, whose columns are `known` by name with their types, named ones first. By
    convention only its `own` are chosen, where partitions are known, too.

    Raises CorpusError listing the columns where one is missing or several would do.
    """
    for option, names in {"--text-column": (text,), "--id-column": (id,), "--keep-columns": kept}.items():
        for name in names:
            if name is not None and name not in known:
                raise missing(source, name, known, option)
    conventional = known if own is None else {name: known[name] for name in known if name in own}
    text = text or _by_convention(source, conventional, TEXT_NAMES, "text")
    if text is None:
        raise CorpusError(
            f"{source} has no text column ({', '.join(TEXT_NAMES)}); it has {_listing(known)}",
            _proposal(known),
        )
    id = id or _by_convention(source, conventional, [name for name in ID_NAMES if name != text], "id")
    return Columns(id=id, text=text, kept=tuple(kept))


def missing(source: str, name: str, known: Mapping[str, str], option: str) -> CorpusError:
    """The error for a column that is not there: it lists those that are and proposes the nearest."""
    near = get_close_matches(name, known, 1)
    if option == "--text-column":
        proposal = _naming(near[0]) if near else _proposal(known)
    else:
        proposal = f"Did you mean {option} {near[0]}?" if near else f"Name one that it has with {option}."
    return CorpusError(f"{source} has no column {name!r}; it has {_listing(known)}", proposal)


def _by_convention(source: str, known: Mapping[str, str], names: Sequence[str], role: str) -> str | None:
    found = [name for name in names if name in known]
    if len(found) > 1:
        raise CorpusError(
            f"{source} has several {role} columns, {' and '.join(found)}; all its columns: {_listing(known)}",
            f"Name one: --{role}-column {found[0]}, or [columns] {role} in the job spec.",
        )
    return found[0] if found else None


def _listing(known: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in known.items()) or "no columns"


def _proposal(known: Mapping[str, str]) -> str:
    texts = [name for name, kind in known.items() if "string" in kind]
    return _naming(texts[0] if texts else "NAME")


def _naming(text: str) -> str:
    return f"Name the text column: --text-column {text}, or [columns] text in the job spec."
