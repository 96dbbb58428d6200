"""The time in which a run's engine was there, cut where steps ended: what grew between the samples of a timeline."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

FREE = 0.5
"""Of the KV cache and of `max_num_seqs`: below it, with nothing in the engine's queue, the engine could take more."""


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Each has the seconds and the growth of counts since the one before, so that together they are those of the run:
    a second belongs to the step that ended it. In the last one no step may have ended.

    `ends`: the sample that each ends with. `prefill`: with padding. `starved`: steps, none of the first interval, which
    begins with what has been read by then. `running`: sequences, a mean over the steps.
    Of the moment at which it began: `kv`, a gauge; `was_empty`, the engine; `can_take_more`, work waited for an engine
    that had room and no queue; `is_tail`, nothing was given to the engine any more, and nothing waited in it.
    """

    ends: Counts
    seconds: Array
    idle: Array
    prefill: Array
    decode: Array
    steps: Array
    starved: Array
    running: Array
    kv: Array
    was_empty: npt.NDArray[np.bool_]
    can_take_more: npt.NDArray[np.bool_]
    is_tail: npt.NDArray[np.bool_]

    @property
    def usual_running(self) -> float:
        """Sequences, the median of the time before the tail; all that ever ran, where there is none."""
        if self.is_tail.all():
            return float(self.running.max(initial=0.0))
        return median(self.running[~self.is_tail], self.seconds[~self.is_tail])

    @property
    def empty_places(self) -> Array:
        """Seconds of the tail, each by the share of sequences that it lacks of those that usually ran."""
        missing = np.clip(1 - self.running / max(self.usual_running, 1.0), 0, 1)
        return np.asarray(self.seconds * missing * self.is_tail, dtype=float)


def intervals_of(timeline: pa.Table, max_num_seqs: int, *, has_own_clock: bool = False) -> Intervals:
    """Of a timeline by its `running_seconds`; where the engine has a clock of its own it is never idle by that."""
    columns = {
        name: np.append(0.0, timeline[name].to_numpy().astype(float)) for name in timeline.column_names
    }
    ends = _ends(columns)
    begins = np.append(0, ends[:-1])[: len(ends)]
    grown = {name: values[ends] - values[begins] for name, values in columns.items()}
    before = {name: values[begins] for name, values in columns.items()}
    held = columns["running"] + columns["waiting"]
    is_there, is_empty = before["num_steps"] > 0, held[begins] == 0
    comes = before["waiting_prefill_tokens"] != columns["waiting_prefill_tokens"][-1]
    queues = before["waiting"] > 0
    has_room = (before["running"] < FREE * max_num_seqs) & (before["kv_cache_usage"] < FREE)
    seconds = grown["running_seconds"]
    waits = is_there & is_empty & (held[ends] == 0) & (grown["num_steps"] == 0)
    idle = np.where(waits, seconds, np.minimum(grown["idle_seconds"], seconds))
    return Intervals(
        ends=ends - 1,
        seconds=seconds,
        idle=idle * (not has_own_clock),
        prefill=grown["prefill_tokens"] + grown["padded_tokens"],
        decode=grown["decode_tokens"],
        steps=grown["num_steps"],
        starved=grown["starved_steps"] * is_there,
        running=_running(before["running"], columns["running"][ends], grown),
        kv=before["kv_cache_usage"],
        was_empty=is_empty,
        can_take_more=comes & ~queues & has_room & is_there,
        is_tail=~np.maximum.accumulate((comes | queues)[::-1])[::-1] & is_there,
    )


def _ends(columns: dict[str, Array]) -> Counts:
    """The samples at which a step more had ended, the later of two at one moment, and the last of all."""
    moments = columns["running_seconds"]
    ended = np.flatnonzero(np.diff(columns["num_steps"]) > 0) + 1
    last = len(moments) - 1
    ended = ended if last in ended else np.append(ended, last)
    is_later = np.diff(moments[ended], append=np.inf) > 0
    found: Counts = ended[is_later & (moments[ended] > 0)]
    return found


def _running(before: Array, after: Array, grown: dict[str, Array]) -> Array:
    """Of many steps the mean of both gauges; of few at least the tokens of a step, which those wrote, too, that ended
    with it.
    """
    wrote = grown["decode_tokens"] / np.maximum(grown["num_steps"], 1.0)
    return np.asarray(np.clip(wrote, (before + after) / 2, np.maximum(before, after)), dtype=float)


def median(values: Array, weights: Array) -> float:
    """The value at which half of the weight is behind; of two the greater."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2, side="right")])
