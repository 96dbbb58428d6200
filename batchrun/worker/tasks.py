"""The documents under way: each a generator that waits for the rows of its calls."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from batchrun.records import Document, Request, Summary
from batchrun.worker.calls import Call, CallSettings, resumed
from batchrun.worker.summarizer import Calls, summarize

Recall = Callable[[Sequence[bytes]], dict[bytes, Summary]]
"""Rows of the memo table by key, of those asked for."""

ROWS_KEPT = 4096
"""Rows of nested calls of this run that are remembered: documents that begin alike share parts."""


@dataclass(slots=True, eq=False)
class _Task:
    calls: Calls
    asked: list[Call] = field(default_factory=list)
    rows: dict[bytes, Summary] = field(default_factory=dict)
    num_missing: int = 0
    is_dropped: bool = False


@dataclass(kw_only=True)
class Moved:
    """What came of documents that moved on: requests for the engine, and rows of finished documents."""

    requests: list[Request] = field(default_factory=list)
    rows: list[Summary] = field(default_factory=list)


class Tasks:
    """Matches rows to documents by the key of their call, never by position. For any threads."""

    def __init__(self, settings: CallSettings, recall: Recall, begun: Recall | None = None) -> None:
        self._settings = settings
        self._recall = recall
        self._find_begun = begun
        self._begun: dict[bytes, Summary] = {}
        self._recent: OrderedDict[bytes, Summary] = OrderedDict()
        self._calls: dict[str, Call] = {}
        self._waiting: dict[bytes, list[_Task]] = {}
        self._lock = Lock()
        self.num_open = 0
        self.recalled_tokens = 0  # input tokens of calls that earlier runs had finished

    def open(self, documents: Iterable[Document]) -> Moved:
        """Start documents; what of them is done already is not asked for again."""
        moved = Moved()
        documents = list(documents)
        with self._lock:
            self._note_begun([document.key for document in documents if not document.parts])
        for document in documents:
            task = _Task(summarize(document, self._settings))
            with self._lock:
                self.num_open += 1
                self._ask(task, next(task.calls), moved)
        return moved

    def call(self, request_id: str) -> Call:
        """The call of a request. Raises KeyError for one that nobody asked for."""
        return self._calls[request_id]

    def find_call(self, request_id: str) -> Call | None:
        """The call of a request, None where it is done."""
        return self._calls.get(request_id)

    def receive(self, rows: Iterable[Summary]) -> Moved:
        """Take the rows of calls."""
        moved = Moved()
        with self._lock:
            for row in rows:
                del self._calls[row.key.hex()]
                if row.document_key is not None:
                    self._remember(row)
                for task in self._waiting.pop(row.key):
                    task.rows[row.key] = row
                    task.num_missing -= 1
                    if not task.num_missing:
                        self._move(task, moved)
        return moved

    def drop(self, request_id: str) -> None:
        """Give up the documents that wait for an aborted call: they are unattempted."""
        with self._lock:
            call = self._calls.pop(request_id)
            for task in self._waiting.pop(call.key):
                self.num_open -= not task.is_dropped
                task.is_dropped = True

    def _move(self, task: _Task, moved: Moved) -> None:
        try:
            asked = task.calls.send([task.rows[call.key] for call in task.asked])
        except StopIteration as done:
            self.num_open -= 1
            moved.rows.append(done.value)
            return
        self._ask(task, asked, moved)

    def _ask(self, task: _Task, asked: list[Call], moved: Moved) -> None:
        task.asked = asked
        task.rows = self._known(asked) if asked[0].document_key is not None else {}
        missing = [call for call in asked if call.key not in task.rows]
        if asked[0].document_key is not None:
            self._note_begun([call.key for call in missing])
        task.num_missing = len(missing)
        for call in missing:
            if call.key not in self._waiting:
                begun = self._begun.pop(call.key, None)
                to_make = call if begun is None else resumed(call, begun.token_ids or ())
                self._calls[call.request.request_id] = to_make
                self._waiting[call.key] = []
                moved.requests.append(to_make.request)
            self._waiting[call.key].append(task)
        if not missing:
            self._move(task, moved)

    def _note_begun(self, keys: Sequence[bytes]) -> None:
        if self._find_begun is not None and keys:
            self._begun |= self._find_begun(keys)

    def _known(self, asked: Sequence[Call]) -> dict[bytes, Summary]:
        nested = [call.key for call in asked]
        found = {key: self._recent[key] for key in nested if key in self._recent}
        missing = [key for key in nested if key not in found]
        recalled = self._recall(missing) if missing else {}
        self.recalled_tokens += sum(row.input_tokens for row in recalled.values())
        return found | recalled

    def _remember(self, row: Summary) -> None:
        self._recent[row.key] = row
        if len(self._recent) > ROWS_KEPT:
            self._recent.popitem(last=False)
