"""What a run cost: hours of the machine and its GPUs, and money where an hour has a price."""

from dataclasses import dataclass
from math import prod

from batchrun.run_record import RunRecord
from batchrun.store.job_file import JobRecord

PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Of a whole run, planning and publication included. `price_per_hour` is that of a GPU, or of a machine that
    computes on none, in any currency; without one the costs are None. What a million tokens cost is the cost of the
    whole by these tokens: read, written, or both. Tokens are those of the calls that ended; None: there were none.
    """

    machine_hours: float
    num_gpus: int
    gpu_hours: float
    price_per_hour: float | None
    cost: float | None
    machine_seconds_per_document: float | None
    cost_per_document: float | None
    machine_hours_per_million_input: float | None
    machine_hours_per_million_output: float | None
    machine_hours_per_million_tokens: float | None
    cost_per_million_input: float | None
    cost_per_million_output: float | None
    cost_per_million_tokens: float | None

    def cost_of(self, machine_seconds: float) -> float | None:
        return _cost(machine_seconds / 3600, self.num_gpus, self.price_per_hour)


def bill_of(record: RunRecord, job: JobRecord, seconds: float, price_per_hour: float | None = None) -> Bill:
    """What a run of `seconds` in all cost; the GPUs are those that the spec's [engine.options] spread over."""
    device = job.resolved.device if job.resolved else "cpu"
    options = job.spec.engine.options
    sizes = [size for name in PARALLEL if isinstance(size := options.get(name, 1), int)]
    num_gpus, hours, tokens = 0 if device == "cpu" else prod(sizes), seconds / 3600, record.tokens

    def each(number: float) -> tuple[float | None, float | None]:
        """Hours and cost of one of so many."""
        if not number:
            return None, None
        return hours / number, _cost(hours / number, num_gpus, price_per_hour)

    document, document_cost = each(record.rows.computed)
    millions = [each(count / 1e6) for count in (tokens.input, tokens.output, tokens.input + tokens.output)]
    return Bill(
        machine_hours=hours,
        num_gpus=num_gpus,
        gpu_hours=hours * num_gpus,
        price_per_hour=price_per_hour,
        cost=_cost(hours, num_gpus, price_per_hour),
        machine_seconds_per_document=None if document is None else 3600 * document,
        cost_per_document=document_cost,
        machine_hours_per_million_input=millions[0][0],
        machine_hours_per_million_output=millions[1][0],
        machine_hours_per_million_tokens=millions[2][0],
        cost_per_million_input=millions[0][1],
        cost_per_million_output=millions[1][1],
        cost_per_million_tokens=millions[2][1],
    )


def _cost(machine_hours: float, num_gpus: int, price_per_hour: float | None) -> float | None:
    return None if price_per_hour is None else machine_hours * max(1, num_gpus) * price_per_hour
