"""A progress line for whoever waits."""

import sys
from typing import Any

import numpy as np

from .smc_record import SMCStep


class Progress:
    """Steps taken, and how the particles fare, on a tqdm bar; nothing where nobody looks."""

    def __init__(self, wanted: bool | None) -> None:
        """Args: None shows the bar in a terminal, once a run has lasted two seconds."""
        self._delay = 2.0 if wanted is None else 0.0
        self._shown = sys.stderr.isatty() if wanted is None else wanted
        self._bar: Any = None

    def show(self, step: SMCStep) -> None:
        """Move on by one step."""
        if not self._shown:
            return
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(desc="SMC", unit=" steps", delay=self._delay)
        alive = step.log_weights > -np.inf
        self._bar.set_postfix(
            live=int(np.count_nonzero(alive & ~step.finished)),
            finished=int(np.count_nonzero(alive & step.finished)),
            dead=int(np.count_nonzero(~alive)),
            ESS=f"{step.ess:.1f}",
            logZ=f"{step.log_mean_weight:.2f}",
            refresh=False,
        )
        self._bar.update()

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
