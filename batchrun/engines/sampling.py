"""The next token of one request: the likeliest, or drawn from a stream of its own."""

from typing import Any

from batchrun.records import Request

SEED_MASK = 2**64 - 1
MIN_TEMPERATURE = 1e-5
"""Below it vLLM decodes greedily, and so does this."""


class Sampler:
    """Its stream is made from the request's seed alone, so that no neighbour and no order changes it."""

    def __init__(self, request: Request, device: str) -> None:
        self._temperature = request.temperature
        self._top_p = request.top_p
        self._generator = _generator(request.seed, device) if self._draws else None

    def choose(self, logits: Any, likeliest: int) -> int:
        """A token of the distribution `logits`, float32 `[vocabulary]`, of which `likeliest` is the maximum."""
        if not self._draws:
            return likeliest
        import torch

        probabilities = torch.softmax(self._warped(logits), dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))

    @property
    def _draws(self) -> bool:
        return self._temperature >= MIN_TEMPERATURE

    def _warped(self, logits: Any) -> Any:
        from transformers import TopPLogitsWarper

        scores = logits / self._temperature
        return TopPLogitsWarper(self._top_p)(None, scores[None])[0] if self._top_p < 1.0 else scores


def _generator(seed: int, device: str) -> Any:
    import torch

    return torch.Generator(device=device).manual_seed(seed & SEED_MASK)
