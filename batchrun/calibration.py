"""Calibration: what this engine does on this machine, measured, and what to change in the spec."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from batchrun import engines
from batchrun.engines.base import Engine, EngineConfig
from batchrun.errors import CorpusError, EngineUnavailableError
from batchrun.job import Job
from batchrun.meter import Meter
from batchrun.preparation import CorpusInput
from batchrun.preview import requests
from batchrun.profile import SPEEDUP_WORTH_SAYING, Point, Profile, write_profile
from batchrun.records import Request
from batchrun.reporter import Reporter
from batchrun.subject import subject_of
from batchrun.telemetry.run_records import timestamp

DOCUMENTS = 8
MOST_INPUT_TOKENS = 8192
"""Of the documents together: a CPU reads them in half a minute."""
MOST_OUTPUT_TOKENS = 128
"""Of each document while speculation is measured: enough to see it, without waiting for a report's length."""
COMPARED_LENGTH = 512
"""Of the prompts with which values of `max_num_batched_tokens` are compared."""
PREFILL_SHARE, DECODE_SHARE, COMPARISON_SHARE = 0.4, 0.3, 0.1
"""Of the seconds that were asked for; a comparison is made in each engine that is started."""


@dataclass(frozen=True, kw_only=True)
class SpeculationResult:
    """Decoding of the same documents without and with speculation, in output tokens/s over all of them."""

    num_documents: int
    off_tokens_per_s: float
    on_tokens_per_s: float
    num_equal: int

    @property
    def ratio(self) -> float:
        return self.on_tokens_per_s / self.off_tokens_per_s

    @property
    def is_exact(self) -> bool:
        """Whether every output is the same, token for token."""
        return self.num_equal == self.num_documents


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A profile, where it lies, and what is to be changed in the spec, a line each."""

    path: Path
    profile: Profile
    speculation: SpeculationResult | None
    advice: list[str]
    loading_seconds: float
    measuring_seconds: float


def calibrate(
    job: Job,
    corpus: CorpusInput | None,
    *,
    seconds: float,
    batched_tokens: Sequence[int],
    reporter: Reporter,
) -> Calibration:
    """Measure the job's engine for about `seconds`, loading included where it is loaded more than once.

    `batched_tokens` are values of `max_num_batched_tokens` to try beside the spec's; without any, half and
    double of it are tried where there is time. A `corpus` gives documents to measure speculation with.
    Raises BatchrunError.
    """
    return _Calibrator(job, corpus, seconds, reporter).calibrate(batched_tokens)


class _Calibrator:
    """An engine is started for each value of `max_num_batched_tokens`, and for the other kind of speculation.

    One that speculates comes last: vLLM 0.32 on a CPU starts no engine in a process in which one has.
    """

    def __init__(self, job: Job, corpus: CorpusInput | None, seconds: float, reporter: Reporter) -> None:
        self._job = job
        self._note: Callable[[str], None] = reporter.note
        self._seconds = seconds
        self._here = job.resolve()
        self._config = job.config_for(self._here)
        self._documents = _documents(job, corpus) if corpus else []
        self._loading = self._measuring = 0.0
        self._outputs: dict[str, tuple[float, list[list[int]]]] = {}  # of the documents, by speculation
        self._compared: dict[int, float] = {}

    def calibrate(self, batched_tokens: Sequence[int]) -> Calibration:
        speculation = self._config.speculation
        if speculation == "off":
            prefill, decode = self._measure_all()
            self._compare(batched_tokens)
            if self._documents and self._here.kind == "vllm":
                self._measure_documents("ngram")
        else:
            self._measure_documents("off")
            self._compare(batched_tokens)
            prefill, decode = self._measure_all()
        return self._end(prefill, decode)

    # -- measuring -----------------------------------------------------------------------------------

    def _measure_all(self) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        with self._meter(self._config) as meter:
            self._note("measuring how it reads")
            prefill = meter.prefill(self._seconds * PREFILL_SHARE)
            self._note("measuring how it writes")
            decode = meter.decode(self._seconds * DECODE_SHARE)
            self._compare_in(meter, self._config.max_num_batched_tokens)
            if self._documents:
                self._outputs[self._config.speculation] = meter.documents(self._documents)
        return prefill, decode

    def _measure_documents(self, speculation: str) -> None:
        if self._documents:
            with self._meter(replace(self._config, speculation=speculation)) as meter:
                self._note(f"measuring {len(self._documents)} documents with speculation {speculation}")
                self._outputs[speculation] = meter.documents(self._documents)

    def _compare(self, asked: Sequence[int]) -> None:
        """Measure other values of `max_num_batched_tokens`, without speculation: it has no part in reading."""
        own = self._config.max_num_batched_tokens
        for value in asked or (own // 2, own * 2):
            if value in {0, own} or value in self._compared:
                continue
            if not asked and not self._has_time():
                self._note(
                    f"no time to try max_num_batched_tokens {value:,}: give --seconds, or --batched-tokens"
                )
                continue
            config = replace(self._config, max_num_batched_tokens=value, speculation="off")
            try:
                with self._meter(config) as meter:
                    self._compare_in(meter, value)
            except EngineUnavailableError as error:
                if asked:
                    raise
                self._note(f"max_num_batched_tokens {value:,} is passed over: {error.reason}")

    def _compare_in(self, meter: Meter, value: int) -> None:
        length = min(COMPARED_LENGTH, meter.lengths()[-1])
        budget = 2 * self._config.max_num_batched_tokens
        self._compared[value] = meter.prefill_rate(length, self._seconds * COMPARISON_SHARE, budget)

    def _has_time(self) -> bool:
        """Whether another engine can be loaded and measured: as long as it took to load one, and its share."""
        one_more = self._loading + self._seconds * COMPARISON_SHARE
        return self._loading + self._measuring + one_more <= self._seconds

    @contextmanager
    def _meter(self, config: EngineConfig) -> Iterator[Meter]:
        started = time.monotonic()
        self._note(
            f"loading {config.kind} ({config.device}, {config.dtype}) with max_num_batched_tokens "
            f"{config.max_num_batched_tokens:,}, speculation {config.speculation}"
        )
        engine: Engine = engines.start(config)
        self._loading += time.monotonic() - started
        try:
            meter = Meter(engine, self._job.model.vocabulary_size)
            yield meter
            self._measuring += meter.seconds
        finally:
            engine.close()

    # -- what comes of it ----------------------------------------------------------------------------

    def _end(self, prefill: tuple[Point, ...], decode: tuple[Point, ...]) -> Calibration:
        profile = Profile(
            of=subject_of(self._job, self._here),
            prefill=prefill,
            decode=decode,
            max_num_batched_tokens=max(self._compared, key=lambda value: self._compared[value]),
            batched_tokens=tuple(sorted(self._compared.items())),
            measured_with=self._config.max_num_batched_tokens,
            calibrated_at=timestamp(),
        )
        speculation = self._speculation()
        return Calibration(
            path=write_profile(self._job.workspace.profiles, profile).absolute(),
            profile=profile,
            speculation=speculation,
            advice=[*self._batched_advice(profile), *self._speculation_advice(speculation)],
            loading_seconds=self._loading,
            measuring_seconds=self._measuring,
        )

    def _speculation(self) -> SpeculationResult | None:
        if len(self._outputs) < 2:  # noqa: PLR2004 - off and on
            return None
        off_rate, off = self._outputs.pop("off")
        [(on_rate, on)] = self._outputs.values()
        return SpeculationResult(
            num_documents=len(off),
            off_tokens_per_s=off_rate,
            on_tokens_per_s=on_rate,
            num_equal=sum(one == other for one, other in zip(off, on, strict=True)),
        )

    def _batched_advice(self, profile: Profile) -> list[str]:
        own, best = self._config.max_num_batched_tokens, profile.max_num_batched_tokens
        gain = self._compared[best] / self._compared[own]
        if gain <= SPEEDUP_WORTH_SAYING:
            return []
        return [
            f"set max_num_batched_tokens = {best} in [engine]: it reads {gain:.2f} times as fast as {own}"
        ]

    def _speculation_advice(self, found: SpeculationResult | None) -> list[str]:
        if found is None:
            return []
        own = self._config.speculation
        if found.ratio > SPEEDUP_WORTH_SAYING and own == "off" and found.is_exact:
            return [
                f'set speculation = "ngram" in [engine]: it writes {found.ratio:.2f} times as fast, the same'
            ]
        if found.ratio < 1 and own != "off":
            return [f'set speculation = "off" in [engine]: it writes {1 / found.ratio:.2f} times as fast']
        return []


def _documents(job: Job, corpus: CorpusInput) -> list[Request]:
    """Of the first documents of a corpus those that together are not too long, at least one, as the job asks for
    them, but greedily and with a bounded output.
    """
    found: list[Request] = []
    room = MOST_INPUT_TOKENS
    for request in islice(requests(job, corpus), DOCUMENTS * DOCUMENTS):
        if len(found) < DOCUMENTS and (not found or len(request.prompt_token_ids) <= room):
            found.append(request)
            room -= len(request.prompt_token_ids)
    if not found:
        raise CorpusError("no row of the corpus has a prompt that fits", "Calibrate without a corpus.")
    return [
        msgspec.structs.replace(
            request, max_tokens=min(request.max_tokens, MOST_OUTPUT_TOKENS), temperature=0.0, top_p=1.0
        )
        for request in found
    ]
