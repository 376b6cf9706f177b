"""What inference returns: the particles, their weights, and what these say."""

import html
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..display import Bars, bars_html, visible
from ..errors import NoMassError
from ..numerics import as_float64, logsumexp
from .weights import effective_sample_size, normalize

if TYPE_CHECKING:
    from .smc_record import SMCRecord

_N_SHOWN = 20  # lines of texts in a table


class Particle(Protocol):
    """A running copy of a model, as far as inference knows it."""

    weight: float
    finished: bool

    def done_stepping(self) -> bool:
        """Whether it has taken its last step."""
        ...

    def untwist(self) -> None:
        """Take the twist back."""
        ...

    def string_for_serialization(self) -> str:
        """What it shows in a record."""
        ...


class Particles(list[Any]):
    """A weighted population: a list of models, dead ones included, always as long as was asked for.

    Weights and statistics are those at the end of inference; later changes of a particle's `weight` do
    not reach them.

    Attributes:
        log_weights: (N,) nats, unnormalised, without twists; -inf for the dead.
        normalized_weights: (N,) that sum to one over all that are alive; all 0 if none is.
        ess: effective sample size, between 1 and N; 0 if all are dead.
        log_marginal_likelihood: the estimate of log Z, in nats; its exponential is unbiased. -inf if
            all are dead.
        log_marginal_likelihood_se: its standard error, in nats, estimated from this run alone, where
            there is theory for that: without resampling, or with the multinomial scheme. None elsewhere.
        record: what happened at each step.
    """

    log_marginal_likelihood_se: float | None

    def __init__(
        self,
        particles: Iterable[Particle],
        record: "SMCRecord | None" = None,
        log_marginal_likelihood: float | None = None,
    ) -> None:
        """Args: by default log Z is the log of the mean weight of the finished particles."""
        super().__init__(particles)
        self.record = record
        self.log_weights: NDArray[np.float64] = as_float64([particle.weight for particle in self])
        self.normalized_weights: NDArray[np.float64] = as_float64(normalize(self.log_weights).tolist())
        self.ess = effective_sample_size(self.log_weights)
        self._finished = np.array([particle.done_stepping() for particle in self], dtype=bool)
        if log_marginal_likelihood is None:
            finished = self.log_weights[self._finished]
            log_marginal_likelihood = logsumexp(finished) - math.log(max(1, len(self)))
        self.log_marginal_likelihood = float(log_marginal_likelihood)
        self.log_marginal_likelihood_se = None

    @property
    def n_dead(self) -> int:
        """How many particles have weight zero."""
        return int(np.count_nonzero(self.log_weights == -np.inf))

    @property
    def n_unfinished(self) -> int:
        """How many live particles were stopped by `max_steps` before they had finished."""
        return int(np.count_nonzero(~self._finished & (self.log_weights > -np.inf)))

    def posterior(self, key: Callable[[Any], Any] = str) -> dict[Any, float]:
        """Probabilities of what the particles show, the largest first; finished and live ones only.

        Args:
            key: what to look at, a function of the particle: its text, unless told otherwise.

        Returns:
            Values of the key and their probabilities, which sum to one; empty if nothing is left.
        """
        included = np.where(self._finished, self.log_weights, -np.inf)
        masses: dict[Any, float] = {}
        for particle, weight in zip(self, normalize(included), strict=True):
            if weight > 0:
                value = key(particle)
                masses[value] = masses.get(value, 0.0) + float(weight)
        return dict(sorted(masses.items(), key=lambda pair: -pair[1]))

    def best(self) -> Any:
        """The particle that shows the mode of `posterior()`; of several, the heaviest.

        Raises:
            NoMassError: if no particle has finished alive.
        """
        posterior = self.posterior()
        if not posterior:
            raise NoMassError(
                f"no particle is both finished and alive ({self.n_dead} of {len(self)} are dead, "
                f"{self.n_unfinished} unfinished), so there is no best one: use more particles, "
                "a better proposal, or a weaker constraint"
            )
        mode = next(iter(posterior))
        showing = [i for i in np.flatnonzero(self._finished) if str(self[i]) == mode]
        return self[max(showing, key=lambda i: self.log_weights[i])]

    def to_dataframe(self) -> Any:
        """The population as a pandas DataFrame, one row a particle, in order.

        Columns: `text`, `log_weight`, `probability` (the normalised weight), `finished`.

        Raises:
            ModuleNotFoundError: if pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(
            {
                "text": [str(particle) for particle in self],
                "log_weight": self.log_weights,
                "probability": self.normalized_weights,
                "finished": self._finished,
            }
        )

    def __repr__(self) -> str:
        bars = self._bars(100)
        lines = [f"  {p:7.4f}  {label}" for label, p in bars.rows]
        if bars.rest is not None:
            label, p = bars.rest
            lines.append(f"  {p:7.4f}  ({label})")
        return "\n".join([self._summary(), *lines])

    def _repr_html_(self) -> str:
        return f"<div>{html.escape(self._summary())}</div>{bars_html(self._bars(300))}"

    def _summary(self) -> str:
        se = self.log_marginal_likelihood_se
        log_z = f"log Z {self.log_marginal_likelihood:z.3f}" + (f" ± {se:.3f}" if se is not None else "")
        parts = [f"{len(self)} particles", f"ESS {self.ess:.1f}", log_z]
        parts += [f"{self.n_dead} dead"] if self.n_dead else []
        parts += [f"{self.n_unfinished} unfinished"] if self.n_unfinished else []
        return ", ".join(parts)

    def _bars(self, limit: int) -> Bars:
        posterior = list(self.posterior().items())
        n_shown = _N_SHOWN if len(posterior) <= _N_SHOWN else _N_SHOWN - 1
        rows = [(visible(text, limit), p) for text, p in posterior[:n_shown]]
        others = posterior[n_shown:]
        return Bars(rows, (f"{len(others):,} more", sum(p for _, p in others)) if others else None)
