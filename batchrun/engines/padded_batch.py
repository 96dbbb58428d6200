"""A batch on torch: prompts padded on the left, computed together, decoded until every output has ended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchrun.engines.padding import max_output
from batchrun.engines.sampling import Sampler
from batchrun.engines.transformers_model import LoadedModel
from batchrun.records import Completion, FinishReason, Request

PAD_TOKEN = 0
"""Masked wherever it stands; any token that every model has."""


@dataclass(kw_only=True)
class _Row:
    request: Request
    sampler: Sampler
    max_output: int
    token_ids: list[int] = field(default_factory=list)
    is_running: bool = True


class PaddedBatch:
    """`prefill` once, then `decode` while something runs. A text does not depend on its neighbours: their
    lengths move it in the batch, and masks and positions follow. In float32 its tokens are the same beside
    any neighbours; in fewer bits a matrix product may round in another way in a batch of another shape.
    """

    def __init__(self, model: LoadedModel, requests: Sequence[Request], max_model_len: int) -> None:
        self._model = model
        self._rows = [
            _Row(
                request=request,
                sampler=Sampler(request, model.device),
                max_output=max_output(request, max_model_len),
            )
            for request in requests
        ]
        self.is_prefilled = False
        self.num_columns = max(len(request.prompt_token_ids) for request in requests)
        self._cache = model.new_cache()
        self._mask: Any = None
        self._positions: Any = None
        self._idle_rows = 0  # summed over the tokens since rows were dropped

    @property
    def running(self) -> list[Request]:
        """Whose outputs have not ended."""
        return [row.request for row in self._rows if row.is_running]

    @property
    def num_rows(self) -> int:
        """Those that are computed: some may have ended."""
        return len(self._rows)

    @property
    def num_positions(self) -> int:
        """In the KV cache, padding and ended rows among them."""
        return self.num_rows * self.num_columns

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(row.request.prompt_token_ids) for row in self._rows)

    def prefill(self) -> list[Completion]:
        """Compute the prompts and the first token of each output; return what ends with it."""
        import torch

        width = self.num_columns
        prompts = [row.request.prompt_token_ids for row in self._rows]
        padded = [[PAD_TOKEN] * (width - len(prompt)) + prompt for prompt in prompts]
        masks = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self._mask = torch.tensor(masks, device=self._model.device)
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)
        self._positions = positions[:, -1:]
        completions = self._compute(torch.tensor(padded, device=self._model.device), positions)
        self.is_prefilled = True
        return completions

    def decode(self) -> list[Completion]:
        """Compute one more token of each output; return what ends with it."""
        import torch

        self._drop_ended()
        last = torch.tensor([[row.token_ids[-1]] for row in self._rows], device=self._model.device)
        self._mask = torch.cat([self._mask, self._mask.new_ones((len(self._rows), 1))], dim=1)
        self._positions = self._positions + 1
        self.num_columns += 1
        return self._compute(last, self._positions)

    def abort(self, request_ids: Collection[str]) -> None:
        """Let the outputs of these requests end without a completion."""
        for row in self._rows:
            if row.request.request_id in request_ids:
                row.is_running = False

    def release(self) -> None:
        """Give the memory back, whoever still holds the batch; it can not be computed on."""
        self._cache = self._mask = self._positions = None

    def _compute(self, token_ids: Any, positions: Any) -> list[Completion]:
        logits = self._model.next_logits(token_ids, self._mask, positions, self._cache)
        greedy = logits.argmax(dim=-1).tolist()
        running = [(number, row) for number, row in enumerate(self._rows) if row.is_running]
        # All are chosen before any is written down: choosing takes memory, and may fail for want of it.
        chosen = [row.sampler.choose(logits[number], greedy[number]) for number, row in running]
        completions = []
        for (_, row), token in zip(running, chosen, strict=True):
            row.token_ids.append(token)
            if reason := self._ending(row):
                row.is_running = False
                completions.append(_completion(row, reason))
        return completions

    def _ending(self, row: _Row) -> FinishReason | None:
        """In vLLM's order: an end token is a stop, also where it is the last token that there is room for."""
        if row.token_ids[-1] in self._model.end_token_ids and not row.request.ignore_eos:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(row.token_ids) >= row.max_output else None

    def _drop_ended(self) -> None:
        """Take ended rows out of the cache once they have cost as much as copying the others does."""
        import torch

        kept = [number for number, row in enumerate(self._rows) if row.is_running]
        self._idle_rows += len(self._rows) - len(kept)
        if self._idle_rows < len(kept) or len(kept) == len(self._rows):
            return
        index = torch.tensor(kept, device=self._model.device)
        self._cache.batch_select_indices(index)
        self._mask, self._positions = self._mask[index], self._positions[index]
        self._rows = [self._rows[number] for number in kept]
        self._idle_rows = 0


def _completion(row: _Row, reason: FinishReason) -> Completion:
    return Completion(
        request_id=row.request.request_id,
        token_ids=row.token_ids,
        finish_reason=reason,
        input_tokens=len(row.request.prompt_token_ids),
    )
