"""The documents under way: each a generator that waits for completions."""

from dataclasses import dataclass, field
from threading import Lock

from batchrun.records import Completion, Document, Request
from batchrun.worker.summarizer import Calls, CallSettings, Draft, summarize


@dataclass(slots=True)
class _Task:
    calls: Calls
    waiting: set[str]
    received: list[Completion] = field(default_factory=list)


class Tasks:
    """Matches completions to documents by request id, never by position. For any threads."""

    def __init__(self, settings: CallSettings) -> None:
        self._settings = settings
        self._by_request: dict[str, _Task] = {}
        self._lock = Lock()
        self.num_open = 0

    def open(self, document: Document) -> list[Request]:
        """Start a document; returns its first requests."""
        calls = summarize(document, self._settings)
        requests = next(calls)
        with self._lock:
            self.num_open += 1
            self._wait(_Task(calls, set()), requests)
        return requests

    def _wait(self, task: _Task, requests: list[Request]) -> None:
        task.waiting = {request.request_id for request in requests}
        task.received = []
        for request in requests:
            assert request.request_id not in self._by_request, "a request id is in use once"
            self._by_request[request.request_id] = task

    def receive(self, completion: Completion) -> Draft | list[Request]:
        """Take a completion: gives the document's draft, or its next requests (none while it waits).

        Raises KeyError for a completion that nobody asked for.
        """
        with self._lock:
            task = self._by_request.pop(completion.request_id)
            task.waiting.discard(completion.request_id)
            task.received.append(completion)
            if task.waiting:
                return []
            try:
                requests = task.calls.send(task.received)
            except StopIteration as done:
                self.num_open -= 1
                draft: Draft = done.value
                return draft
            self._wait(task, requests)
            return requests
