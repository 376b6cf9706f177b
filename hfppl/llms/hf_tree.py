"""Incremental evaluation over a tree of prefixes: each new token costs one column of computation.

Joins the parts: the planner says what is missing, passes compute it with attention over shared and
private keys, the store keeps it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .hf_attention import AttentionPass, attention_of, configurations
from .hf_forward import CausalForward
from .kv_pass import PackedPass
from .kv_plan import Planner, cut_into_passes
from .kv_promote import promote_trunks
from .kv_stretch import KVShape, Segment
from .kv_tree import KVTree
from .prefix import Prefix

SEGMENT_PIECE = 512  # tokens of a prompt in one pass
TOKENS_PER_PASS = 1024
PROMOTE_EVERY = 8  # batches


class TreeEvaluator:
    """Rows of logits for sequences that grow token by token and share their beginnings."""

    def __init__(self, forward: CausalForward, shape: KVShape, limit: int) -> None:
        self._forward = forward
        self._configs = configurations(forward.model)
        self.tree = KVTree(shape, limit)
        self.reused = 0

    @property
    def n_bytes(self) -> int:
        """Memory of keys and values, spare room included."""
        return self.tree.n_bytes

    def clear(self) -> None:
        """Forget everything and release the memory."""
        self.tree.clear()

    def evaluate(self, prefixes: Sequence[Prefix], *, keep: bool = False) -> list[Tensor]:
        """One row `(n_logits,)` of float32 logits for each sequence, in order.

        Args:
            prefixes: distinct and not empty.
            keep: hold on to everything the sequences need until the store is cleared.
        """
        tree = self.tree
        tree.batch += 1
        planner = Planner(tree)
        rows: dict[Prefix, Tensor] = {}
        wanted = set(prefixes)
        # Under inference mode also outside of the passes: the store's tensors are born in it.
        with torch.inference_mode():
            try:
                planner.add(prefixes, whole_segment=keep)
                tree.shrink(lambda stretch: stretch.last_used < tree.batch)
                for runs in cut_into_passes(planner.runs, SEGMENT_PIECE, TOKENS_PER_PASS):
                    rows.update(self._run(PackedPass(tree, runs), wanted))
            except BaseException:
                planner.undo()
                raise
            try:
                self._tidy(planner, keep)
            except BaseException:
                tree.clear()  # half-moved keys must not be found again
                raise
        self.reused += planner.reused
        return [rows[prefix] for prefix in prefixes]

    def _tidy(self, planner: Planner, keep: bool) -> None:
        if keep:
            for run in planner.runs:
                for stretch in run.stretch.line():
                    stretch.pinned = True
        if self.tree.batch % PROMOTE_EVERY == 0:
            promote_trunks(self.tree)
        self.tree.shrink(lambda stretch: True)

    def _run(self, packed: PackedPass, wanted: set[Prefix]) -> dict[Prefix, Tensor]:
        """Compute one pass; the rows of those of its tokens that are wanted."""
        asked = [(node, index) for node, index in packed.index.items() if node in wanted]
        # The head needs at least one position; a piece of a prompt asks for none.
        positions = [index for _, index in asked] or [packed.n_tokens - 1]
        kept = torch.tensor(positions, device=packed.input_ids.device)
        current = AttentionPass(packed.own, packed.shared, packed.write)
        with attention_of(self._configs, current):
            logits = self._forward(packed.input_ids, kept, position_ids=packed.position_ids, cache=current)[0]
        return {node: logits[row] for row, (node, _) in enumerate(asked)}

    def keep(self, prefix: Prefix) -> None:
        """Compute what is missing of a sequence and hold on to it until the store is cleared."""
        if not len(prefix):
            return
        holder, depth = self.tree.find(prefix)
        if depth == len(prefix) and isinstance(holder, Segment):
            for stretch in holder.line():
                stretch.pinned = True
            if holder.anchor is None or len(holder.anchor) < depth:
                holder.anchor = prefix
        else:
            self.evaluate([prefix], keep=True)
