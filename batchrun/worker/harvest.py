"""What steps of the engine ended: as rows for the store, and as observations for request telemetry."""

from collections.abc import Sequence

import msgspec

from batchrun.prompts.tokenizer import Tokenizer
from batchrun.records import Completion, FinishReason, Observation, Summary
from batchrun.worker.answers import answer, begun_row
from batchrun.worker.residency import Slice
from batchrun.worker.tasks import Tasks


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of the engine ended, the sequences that ran in it, and time.monotonic() after it."""

    slices: list[Slice]
    running: int
    finished_at: float


class Harvest:
    """For the collector's thread. `engine` is the label of what made the tokens."""

    def __init__(self, tasks: Tasks, tokenizer: Tokenizer) -> None:
        self._tasks = tasks
        self._tokenizer = tokenizer

    def observations(self, step: Step) -> list[Observation]:
        """An aborted request that comes back is observed, though it leads to no row."""
        calls = [self._tasks.call(one.completion.request_id) for one in step.slices]
        return [
            Observation(
                key=call.key,
                document_key=call.document_key,
                stage=call.stage,
                attempt=call.attempts + 1,
                slice_number=one.number,
                running=step.running,
                finished_at=step.finished_at,
                completion=one.completion,
            )
            for call, one in zip(calls, step.slices, strict=True)
        ]

    def answers(self, outputs: Sequence[Completion], engine: str) -> list[Summary]:
        """The rows of calls, detokenized together. An aborted call has none: it is unattempted."""
        attempted = []
        for output in outputs:
            if output.finish_reason is FinishReason.ABORT:
                self._tasks.drop(output.request_id)
            else:
                attempted.append(output)
        texts = self._tokenizer.decode([output.token_ids for output in attempted])
        return [
            answer(self._tasks.call(output.request_id), output, text, engine)
            for output, text in zip(attempted, texts, strict=True)
        ]

    def partial(self, one: Slice, engine: str) -> Summary:
        """What is kept of an output that goes on, so that a killed run goes on with it."""
        return begun_row(self._tasks.call(one.output.request_id), one.output, engine)
