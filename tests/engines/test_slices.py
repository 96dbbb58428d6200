"""Outputs in slices on real engines: sliced, resumed and straight they are the same."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from batchrun import engines
from batchrun.engines.base import Engine
from batchrun.records import Request
from batchrun.worker.calls import Call, resumed
from batchrun.worker.driver import Driver
from batchrun.worker.feeder import Feeder, FeedingSettings
from batchrun.worker.residency import Residency, Slice
from tests.engines.requests import make_config, make_request
from tests.fixtures import tokenizer_of

KOREAN = "도서관은 밤에도 열려 있다. 사람들은 조용히 책을 읽고, 이야기를 나누지 않는다. "


@pytest.fixture(
    scope="module",
    params=["lead", *(pytest.param(kind, marks=pytest.mark.engine) for kind in ("transformers", "vllm"))],
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Float32, prefix caching on where there is one."""
    kind = str(request.param)
    model = request.path if kind == "lead" else request.getfixturevalue("tiny_llama")
    options = {"own_process": False} if kind == "vllm" else {}
    engine = engines.start(make_config(kind, model, samples=True, options=options))
    yield engine
    engine.close()


def run(
    engine: Engine, requests: Sequence[Request], slice_tokens: int, stop_after: int | None = None
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The whole outputs by id, and the beginnings of others, where it is stopped after so many slices."""
    stop, whole, begun = Event(), {}, {}  # type: Event, dict[str, list[int]], dict[str, list[int]]
    settings = FeedingSettings(residency=Residency(slice_tokens=slice_tokens, max_share=0.5))
    feeder = Feeder(engine.limits, settings, lambda request_id, number: 31 * number + int(request_id[1:]))
    waiting = [list(requests)]
    num_slices = 0

    def take(slices: list[Slice]) -> None:
        nonlocal num_slices
        for one in slices:
            num_slices += 1
            (whole if one.is_last else begun)[one.output.request_id] = one.output.token_ids
        if stop_after is not None and num_slices >= stop_after:
            stop.set()

    def more(_: bool) -> list[Request] | None:
        if waiting:
            return waiting.pop()
        return [] if engine.has_unfinished() or feeder.num_further else None

    Driver(engine, feeder, more, take, stop).run(is_more=lambda: bool(waiting))
    engine.abort([request.request_id for request in requests])
    return whole, {key: tokens for key, tokens in begun.items() if key not in whole}


def requests_of(tiny_llama: Path, number: int, **changes: Any) -> list[Request]:
    """Korean prompts of different lengths, whose outputs are longer than a slice."""
    ids = tokenizer_of(tiny_llama).encode_documents([KOREAN * 3]).ids.tolist()
    return [
        make_request(
            f"r{n}",
            prompt_token_ids=ids[n : n + 40 + 7 * n],
            document_span=(0, 40 + 7 * n),
            max_tokens=60,
            **changes,
        )
        for n in range(number)
    ]


def test_sliced_resumed_and_straight_outputs_agree(engine: Engine, tiny_llama: Path) -> None:
    """Greedy, in float32: token for token, so that text that is cut inside a character is whole again."""
    requests = requests_of(tiny_llama, 8)
    straight, _ = run(engine, requests, 1000)
    sliced, _ = run(engine, requests, 16)
    assert straight == sliced
    some, begun = run(engine, requests, 16, stop_after=12)
    assert begun
    assert {key: straight[key][: len(tokens)] for key, tokens in begun.items()} == begun
    left = [
        resumed(Call(key=b"", request=one, kept_tokens=0), begun.get(one.request_id, [])).request
        for one in requests
        if one.request_id not in some
    ]
    assert straight == some | run(engine, left, 16)[0]


def test_drawn_outputs_agree_where_their_slices_do(engine: Engine, tiny_llama: Path) -> None:
    """Each slice draws with a seed of its own: in another order, beside others, and resumed the same."""
    requests = requests_of(tiny_llama, 6, temperature=0.8, seed=5)
    sliced, _ = run(engine, requests, 16)
    assert sliced == run(engine, requests[::-1], 16)[0]
    some, begun = run(engine, requests, 16, stop_after=9)
    left = [
        resumed(Call(key=b"", request=one, kept_tokens=0), begun.get(one.request_id, [])).request
        for one in requests
        if one.request_id not in some
    ]
    assert sliced == some | run(engine, left, 16)[0]
