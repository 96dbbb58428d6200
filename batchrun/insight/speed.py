"""How long one replica takes for a load: by the profile, and by the speed that a run had."""

from dataclasses import dataclass

from batchrun.estimate import Estimate
from batchrun.insight.ceiling import doubt_of
from batchrun.insight.load import Load
from batchrun.prediction import Prediction
from batchrun.profile import Profile


@dataclass(frozen=True, kw_only=True)
class Took:
    """Seconds of running on one replica; None for reading and writing where only their sum is known."""

    seconds: float
    reading_seconds: float | None = None
    writing_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Speed:
    """`running` sequences at once, calls of at most `longest` input tokens. `factor`: seconds that a run took, by
    those of the profile for the same. Without a profile `tokens_per_second` of input are what is known, or None.
    """

    profile: Profile | None
    longest: int
    running: int
    factor: float = 1.0
    tokens_per_second: float | None = None

    @property
    def is_known(self) -> bool:
        return self.profile is not None or self.tokens_per_second is not None

    @property
    def doubt(self) -> str | None:
        """Why the profile does not tell the speed."""
        return None if self.profile is None else doubt_of(self.profile, self.running, 1 / self.factor)

    def took(self, load: Load) -> Took | None:
        """None where nothing is known."""
        if not load.documents:
            return Took(seconds=0.0, reading_seconds=0.0, writing_seconds=0.0)
        estimate = self._estimate(load)
        if estimate is None:
            rate = self.tokens_per_second
            return None if rate is None else Took(seconds=load.input_tokens / rate)
        reading, both = estimate.reading_seconds, estimate.seconds
        return Took(
            seconds=both * self.factor,
            reading_seconds=reading * self.factor,
            writing_seconds=(both - reading) * self.factor,
        )

    def prediction(self, load: Load) -> Prediction:
        """Of the load, for how much of it fits a time."""
        took = self.took(load)
        return Prediction(seconds=None if took is None else took.seconds, estimate=self._estimate(load))

    def stay_seconds(self, load: Load) -> float:
        """Of the longest output in the engine, while as many run as may: what comes after the last was let in."""
        if self.profile is None or not load.documents:
            return 0.0
        most = max(tokens for tokens, _ in load.outputs)
        return self.factor * most * self.running / self.profile.decode_rate(self.running)

    def _estimate(self, load: Load) -> Estimate | None:
        if self.profile is None:
            return None
        expected = load.expected(longest=self.longest, running=self.running)
        return Estimate(profile=self.profile, expected=expected)
