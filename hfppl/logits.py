"""A row of logits, the mass of its subsets, and draws from them.

A next-token distribution has tens of thousands of outcomes, and a particle asks three things of it at
each step: how likely is this set, draw one of it, how likely was that one. All three come from the
sums of blocks of 512 exponentials: the mass is the sum of the sums, and a draw searches the sums, then
one block. So a masked draw reads the row once or twice, and never sorts or accumulates all of it.

Exponentials are taken in the row's own precision (float32 from a transformer) and summed in it within
a block; the blocks are summed in float64. Every probability is divided by the row's own total, so that
all of a row weighs exactly 1.

A mask comes as a row of factors, 1 for what is allowed and 0 for what is not: multiplying by floats
takes a third of the time of multiplying by booleans.
"""

import math
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from .errors import NoMassError, NumericalError

_BLOCK = 512
# Below this fraction of the row, float32 exponentials begin to lose digits, and then to vanish.
_FAINT = 1e-25

_ONES = np.ones(_BLOCK, dtype=np.float32)


class _Scratch(threading.local):
    """One row's exponentials, for the thread that computed them last."""

    def __init__(self) -> None:
        self.row: weakref.ref[LogitsRow] | None = None
        self.temperature = 1.0
        self.weights: NDArray[np.floating] = np.empty(0)


_SCRATCH = _Scratch()
Mask = NDArray[np.floating] | None


class Mass:
    """The mass of a subset of a row at one temperature. Immutable.

    Attributes:
        log_total: log of the sum of exp((logit - peak) / temperature) over the subset, where `peak` is
            the row's largest logit; -inf for an impossible subset.
    """

    __slots__ = ("log_total", "running", "shift", "total")

    def __init__(self, sums: NDArray[np.float64], shift: float, log_scale: float) -> None:
        """Args: `sums` has one entry a block, of exp((logit - shift) / temperature)."""
        self.running = sums.cumsum()
        self.total = float(self.running[-1])
        self.shift = shift
        self.log_total = log_scale + math.log(self.total) if self.total > 0 else -math.inf


class LogitsRow:
    """Unnormalised log-probabilities of K outcomes: immutable, and shared by all who ask.

    Attributes:
        logits: (K,) float32 or float64, nats, read-only; -inf for impossible outcomes.
        peak: the largest.
    """

    __slots__ = ("__weakref__", "_full", "logits", "peak")

    def __init__(self, logits: NDArray[np.floating]) -> None:
        """Args: `logits` is (K,), kept and made read-only.

        Raises:
            NumericalError: if a logit is NaN or +inf.
        """
        self.peak = float(logits.max())
        if math.isnan(self.peak) or self.peak == math.inf:
            bad = np.flatnonzero(np.isnan(logits) | np.isposinf(logits))
            raise NumericalError(
                f"{len(bad)} of {len(logits)} {logits.dtype} logits are NaN or +inf, "
                f"the first at index {bad[0]}"
            )
        logits.flags.writeable = False
        self.logits = logits
        self._full: tuple[float, Mass] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.logits.nbytes

    def mass(self, temperature: float = 1.0, mask: Mask = None) -> Mass:
        """The mass of the outcomes in `mask`, (K,) of 1 and 0; of all without one."""
        if self.peak == -math.inf:
            return Mass(np.zeros(1), 0.0, 0.0)
        if mask is None:
            full = self._full  # read once: other threads may ask at other temperatures
            return full[1] if full is not None and full[0] == temperature else self._full_mass(temperature)
        mass = Mass(_block_sums(self._exponentials(temperature), mask), self.peak, 0.0)
        if mass.log_total < math.log(_FAINT) and temperature > 0:
            return self._faint_mass(temperature, mask)
        return mass

    def log_prob(self, index: int, within: Mass, temperature: float = 1.0) -> float:
        """Log-probability of one outcome of the subset whose mass is `within`, to which it must belong."""
        logit = float(self.logits[index])
        if logit == -math.inf or within.log_total == -math.inf:
            return -math.inf
        if temperature == 0:
            return 0.0 if index == int(self.logits.argmax()) else -math.inf
        return (logit - self.peak) / temperature - within.log_total

    def draw(self, uniform: float, within: Mass, temperature: float = 1.0, mask: Mask = None) -> int:
        """The outcome at which the running total of the subset first exceeds `uniform` times its mass.

        Args:
            uniform: in [0, 1).
            within: `self.mass(temperature, mask)`.

        Raises:
            NoMassError: if nothing in the subset is possible.
        """
        if within.log_total == -math.inf:
            raise NoMassError("nothing is possible here: every outcome has probability zero or is masked out")
        target = uniform * within.total
        block = _first_above(within.running, target)
        start, stop = block * _BLOCK, (block + 1) * _BLOCK
        if block == len(within.running) - 1:
            stop = len(self.logits)
        if block:
            target -= within.running[block - 1]
        part = self._part(start, stop, within.shift, temperature, mask)
        return start + _first_above(part.cumsum(dtype=np.float64), target)

    def logprobs(self, temperature: float = 1.0, mask: Mask = None) -> NDArray[np.float64]:
        """(K,) nats, normalised over `mask`, -inf outside it; all -inf if nothing is possible."""
        result = np.full(len(self.logits), -np.inf)
        log_total = self.mass(temperature, mask).log_total
        if log_total == -math.inf:
            return result
        if temperature == 0:
            result[int(self.logits.argmax())] = 0.0
            return result
        np.subtract(self.logits, self.peak, out=result, dtype=np.float64)
        if temperature != 1:
            with np.errstate(over="ignore"):
                result /= temperature
        result -= log_total
        if mask is not None:
            result[mask == 0] = -np.inf
        return result

    # --- the passes over the row

    def _full_mass(self, temperature: float) -> Mass:
        mass = Mass(_block_sums(self._exponentials(temperature), None), self.peak, 0.0)
        self._full = (temperature, mass)
        return mass

    def _exponentials(self, temperature: float) -> NDArray[np.floating]:
        """exp((logit - peak) / temperature), in this thread's scratch memory, until its next call.

        Questions about one row come in a run (a mask, a part of it, all), so the last row's are kept.
        Each row keeping its own would double the memory, and new memory is what costs most here.
        """
        scratch = _SCRATCH
        owner = None if scratch.row is None else scratch.row()
        if owner is not self or scratch.temperature != temperature:
            scratch.row = None  # should anything below fail
            if scratch.weights.shape != self.logits.shape or scratch.weights.dtype != self.logits.dtype:
                scratch.weights = np.empty_like(self.logits)
            self._exponentials_into(scratch.weights, temperature)
            scratch.row, scratch.temperature = weakref.ref(self), temperature
        return scratch.weights

    def _exponentials_into(self, out: NDArray[np.floating], temperature: float) -> None:
        if temperature == 0:
            out[:] = 0
            out[int(self.logits.argmax())] = 1
            return
        np.subtract(self.logits, out.dtype.type(self.peak), out=out)
        if temperature != 1:
            out /= temperature
        np.exp(out, out=out)

    def _part(
        self, start: int, stop: int, shift: float, temperature: float, mask: Mask
    ) -> NDArray[np.floating]:
        """The exponentials of a block, relative to `shift`, times the mask."""
        part = self.logits[start:stop]
        if temperature == 0:
            weights = np.zeros_like(part)
            best = int(self.logits.argmax())
            if start <= best < stop:
                weights[best - start] = 1
        elif shift == self.peak:
            weights = part - part.dtype.type(shift)
            if temperature != 1:
                weights /= temperature
            np.exp(weights, out=weights)
        else:
            # In a faint subset, what is masked out lies far above the shift, and its exponential nowhere.
            masked = part if mask is None else np.where(mask[start:stop] > 0, part, -np.inf)
            with np.errstate(over="ignore"):
                return np.exp((masked.astype(np.float64) - shift) / temperature)
        return weights if mask is None else weights * mask[start:stop]

    def _faint_mass(self, temperature: float, mask: NDArray[np.floating]) -> Mass:
        """A mass too small for exponentials relative to the peak: relative to the subset's own largest."""
        logits = np.where(mask > 0, self.logits, -np.inf).astype(np.float64)
        shift = float(logits.max())
        if shift == -math.inf:
            return Mass(np.zeros(1), 0.0, 0.0)
        with np.errstate(over="ignore"):
            weights = np.exp((logits - shift) / temperature)
        return Mass(_block_sums(weights, None), shift, (shift - self.peak) / temperature)


def _block_sums(weights: NDArray[np.floating], mask: Mask) -> NDArray[np.float64]:
    """(K // 512,) float64, the remainder counted with the last block; one block if K < 1024."""
    n_blocks = len(weights) // _BLOCK
    if n_blocks < 2:
        return np.array([(weights if mask is None else weights * mask).sum(dtype=np.float64)])
    end = n_blocks * _BLOCK
    factors = _ONES if mask is None else mask[:end].reshape(-1, _BLOCK)
    sums: NDArray[np.float64] = np.vecdot(weights[:end].reshape(-1, _BLOCK), factors).astype(np.float64)
    rest = weights[end:] if mask is None else weights[end:] * mask[end:]
    sums[-1] += rest.sum(dtype=np.float64)
    return sums


def _first_above(running: NDArray[np.float64], target: float) -> int:
    """The first index whose running total exceeds `target`; if rounding leaves none, the last that grows."""
    index = int(running.searchsorted(target, side="right"))
    if index < len(running):
        return index
    return int(running.searchsorted(running[-1], side="left"))
