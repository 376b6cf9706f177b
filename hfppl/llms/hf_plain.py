"""Next-token logits without any memory: every sequence is computed from its first token, each time.

This is right for every causal architecture (attention of any kind, state-space models, mixtures),
because it uses nothing but the model's own forward pass on whole, unpadded sequences. The faster
path must equal it, and models that cannot take the faster path are evaluated by it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .hf_forward import TOKENS_PER_PASS, CausalForward
from .prefix import Prefix


class PlainEvaluator:
    """Rows of logits by one uncached forward pass for each group of equally long sequences."""

    def __init__(self, forward: CausalForward) -> None:
        self._forward = forward
        self.reused = 0
        self.n_bytes = 0

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        """One row `(n_logits,)` of float32 logits for each sequence, in order."""
        by_length: dict[int, list[int]] = {}
        for index, prefix in enumerate(prefixes):
            by_length.setdefault(len(prefix), []).append(index)
        rows: dict[int, Tensor] = {}
        for length, indices in by_length.items():
            # No padding, hence no mask and no positions that a model could read in its own way.
            step = max(1, min(self._forward.rows_per_pass(), TOKENS_PER_PASS // length))
            for start in range(0, len(indices), step):
                chunk = indices[start : start + step]
                logits = self._last_logits([prefixes[index].token_ids() for index in chunk])
                rows.update(zip(chunk, logits, strict=True))
        return [rows[index] for index in range(len(prefixes))]

    def keep(self, prefix: Prefix) -> None:
        """Nothing is kept."""

    def clear(self) -> None:
        """Nothing is kept."""

    def _last_logits(self, sequences: list[list[int]]) -> Tensor:
        device = self._forward.device
        input_ids = torch.tensor(sequences, device=device)
        last = torch.tensor([input_ids.shape[1] - 1], device=device)
        return self._forward(input_ids, last)[:, 0]
