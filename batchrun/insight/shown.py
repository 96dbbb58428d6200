"""Documents of a run one by one, and the quality of their summaries by bucket."""

from dataclasses import dataclass
from statistics import mean

from batchrun.insight.cost import Bill
from batchrun.insight.documents import Listed
from batchrun.insight.quality import extractive_coverage, share_repeated
from batchrun.insight.sources import Texts


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A document by itself: what it cost, and how its summary reads. `machine_seconds` are its share of the run's; None
    where that is not known.
    """

    document: Listed
    machine_seconds: float | None
    cost: float | None
    compression: float | None
    repetition: float | None
    coverage: float | None


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Means over the summaries of one bucket, or of all, that were looked at one by one."""

    label: str | None
    num_summaries: int
    repetition: float
    num_coverage: int
    coverage: float | None


def shown_of(one: Listed, bill: Bill, texts: Texts) -> Shown:
    text = texts.of_row.get(one.plan_row)
    seconds = None if one.share is None else one.share * bill.machine_hours * 3600
    return Shown(
        document=one,
        machine_seconds=seconds,
        cost=None if seconds is None else bill.cost_of(seconds),
        compression=one.compression,
        repetition=share_repeated(one.summary) if one.summary else None,
        coverage=extractive_coverage(one.summary, text) if one.summary and text else None,
    )


def quality_of_sample(shown: tuple[Shown, ...]) -> list[Quality]:
    """Of the sample as a whole, then of its buckets."""
    sample = [one for one in shown if "sample" in one.document.lists and one.repetition is not None]
    labels = list(dict.fromkeys(one.document.bucket for one in sample))
    return [_quality_of(None, sample), *(_quality_of(label, sample) for label in labels)] if sample else []


def _quality_of(label: str | None, sample: list[Shown]) -> Quality:
    own = [one for one in sample if label in (None, one.document.bucket)]
    covered = [one.coverage for one in own if one.coverage is not None]
    return Quality(
        label=label,
        num_summaries=len(own),
        repetition=mean(one.repetition or 0.0 for one in own),
        num_coverage=len(covered),
        coverage=mean(covered) if covered else None,
    )
