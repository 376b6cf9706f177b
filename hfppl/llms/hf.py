"""Language models of the transformers library as a backend."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .fast_linear import fast_linears
from .hf_forward import CausalForward, is_out_of_memory, max_positions
from .hf_plain import PlainEvaluator
from .hf_probe import probe
from .prefix import Prefix


class HFBackend:
    """Next-token logits of a loaded transformers causal language model (implements `Backend`).

    Args:
        model: the module, on whatever devices it lies; it is called, never moved or changed.
        kv_cache_bytes: limit for keys and values kept between calls; default from available memory.
        fast_linear: whether to multiply by packed weights on a CPU where that is found faster; None: yes,
            unless the environment says `HFPPL_FAST_LINEAR=0`. It costs a second copy of those weights.

    Attributes:
        path_description: how sequences are evaluated, and if not incrementally, why not.

    Keys and values are those of the weights they were computed with: after changing weights or switching
    adapters, `clear`.
    """

    accepts_empty = False

    def __init__(
        self, model: Any, *, kv_cache_bytes: int | None = None, fast_linear: bool | None = None
    ) -> None:
        self.model = model
        self._forward = CausalForward(model, fast_linears(model, fast_linear))
        self.max_context = max_positions(model.config)
        self.device = str(self._forward.device)
        PlainEvaluator(self._forward).evaluate([Prefix.root().child(0)])
        self.n_logits = self._forward.n_logits
        limit = default_kv_bytes(self._forward.device) if kv_cache_bytes is None else kv_cache_bytes
        self._evaluator, self.path_description = probe(self._forward, limit)
        self._forward.passes = self._forward.tokens = 0

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[NDArray[np.floating]]:
        """One float32 row `(n_logits,)` of raw logits for each sequence, in order."""
        if not prefixes:
            return []
        try:
            return [row.numpy() for row in self._evaluate(prefixes)]
        except Exception as error:
            if len(prefixes) == 1 or not is_out_of_memory(error):
                raise
        half = len(prefixes) // 2
        return self.evaluate(prefixes[:half]) + self.evaluate(prefixes[half:])

    def _evaluate(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        step = self._forward.rows_per_pass()
        rows: list[Tensor] = []
        for start in range(0, len(prefixes), step):
            rows += self._evaluator.evaluate(prefixes[start : start + step])
        return rows

    def keep(self, prefix: Prefix) -> None:
        """Compute a sequence's keys and values and hold on to them, whatever the limit, until `clear`."""
        self._evaluator.keep(prefix)

    def clear(self) -> None:
        """Forget all keys and values and release their memory."""
        self._evaluator.clear()

    def counters(self) -> Mapping[str, int]:
        """Running totals."""
        return {
            "forward_passes": self._forward.passes,
            "tokens_evaluated": self._forward.tokens,
            "tokens_reused": self._evaluator.reused,
            "kv_bytes": self._evaluator.n_bytes,
        }


def default_kv_bytes(device: torch.device) -> int:
    """A quarter of the memory that is free now where the model computes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) // 4
    try:
        pages = os.sysconf("SC_AVPHYS_PAGES")
        return pages * os.sysconf("SC_PAGE_SIZE") // 4
    except (AttributeError, OSError, ValueError):  # not every system tells
        return 2**31
