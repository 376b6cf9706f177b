"""Incremental evaluation with the model's own cache, for models whose attention cannot be replaced.

Sequences of one length are evaluated together, each with its own copy of keys, values or recurrent states
in a cache of the transformers library. There is no padding, hence no mask and no position to get wrong,
and a cache is only ever copied and appended to. Nothing is shared between rows: a step costs what it
costs anyone who decodes a batch with that library, in time and in memory.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

from .hf_forward import CausalForward
from .prefix import Prefix

RECENT = 3  # sets of several rows that are kept; of single rows, as many as there is room for
PIECE = 512  # tokens of one sequence in one pass
TOKENS_PER_PASS = 4096


class _Rows:
    """A cache whose rows hold the sequences `nodes`, which are of one length."""

    def __init__(self, cache: Any, nodes: list[Prefix]) -> None:
        self.cache = cache
        self.nodes = nodes
        self.length = len(nodes[0])
        self.n_bytes = sum(tensor.nbytes for layer in cache.layers for tensor in _tensors(vars(layer)))
        self.last_used = 0
        self.pinned = False

    def select(self, rows: list[int], device: torch.device) -> Any:
        """A new cache of some rows; this one stays as it is."""
        cache = copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in self.cache.layers]
        for layer in cache.layers:
            for name, value in vars(layer).items():
                if isinstance(value, dict | list):  # states that a layer may replace one by one
                    setattr(layer, name, copy.copy(value))
        cache.reorder_cache(torch.tensor(rows, device=device))
        return cache


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


class RowsEvaluator:
    """Rows of logits for sequences that grow token by token.

    Args:
        limit: bytes that may be held between calls.
        append_piece: how many tokens the model can append to a cache in one pass (1 for some recurrent ones).
    """

    def __init__(self, forward: CausalForward, limit: int, append_piece: int = PIECE) -> None:
        self._forward = forward
        self._limit = limit
        self._append_piece = append_piece
        self._calls = 0
        self.reused = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything and release the memory."""
        self._held: list[_Rows] = []
        self._where: dict[Prefix, tuple[_Rows, int]] = {}

    @property
    def n_bytes(self) -> int:
        """Held now."""
        return sum(rows.n_bytes for rows in self._held)

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        """One row `(n_logits,)` of float32 logits for each sequence, in order.

        Args:
            prefixes: distinct and not empty.
        """
        self._calls += 1
        answers: dict[Prefix, Tensor] = {}
        with torch.inference_mode():
            for prompt in self._missing_prompts(prefixes):
                answers |= self._extend(None, [0], [prompt])
            groups: dict[tuple[_Rows | None, int], list[tuple[int, Prefix]]] = {}
            for prefix in prefixes:
                if prefix not in answers:
                    source, row = self._find(prefix)
                    self.reused += 0 if source is None else source.length
                    groups.setdefault((source, len(prefix)), []).append((row, prefix))
            for (source, length), members in groups.items():
                new_tokens = length if source is None else length - source.length
                step = max(1, min(self._forward.rows_per_pass(), TOKENS_PER_PASS // new_tokens))
                for start in range(0, len(members), step):
                    some = members[start : start + step]
                    answers |= self._extend(source, [row for row, _ in some], [node for _, node in some])
            self._shrink()
        return [answers[prefix] for prefix in prefixes]

    def keep(self, prefix: Prefix) -> None:
        """Hold on to what makes continuations of a sequence cheap, until everything is cleared."""
        if not len(prefix):
            return
        self.evaluate([prefix])
        if prefix not in self._where:  # the limit is too small for it; it is kept all the same
            with torch.inference_mode():
                self._extend(None, [0], [prefix])
        self._where[prefix][0].pinned = True

    def _find(self, prefix: Prefix) -> tuple[_Rows | None, int]:
        """The longest beginning that is held, of those that leave a token to compute."""
        node = prefix.parent
        while node is not None:
            if node in self._where:
                rows, row = self._where[node]
                rows.last_used = self._calls
                return rows, row
            node = node.parent
        return None, 0

    def _missing_prompts(self, prefixes: Sequence[Prefix]) -> list[Prefix]:
        """What sequences of which nothing is held have in common: to be computed once, before them."""
        families: dict[Prefix, list[list[Prefix]]] = {}
        for prefix in prefixes:
            if self._find(prefix)[0] is None:
                path = prefix.path()
                families.setdefault(path[0], []).append(path)
        prompts = []
        for paths in families.values():
            length = min(len(path) for path in paths)
            while any(path[length - 1] is not paths[0][length - 1] for path in paths):
                length -= 1
            if len(paths) > 1:
                prompts.append(paths[0][length - 1])
        return prompts

    def _extend(self, source: _Rows | None, rows: list[int], nodes: list[Prefix]) -> dict[Prefix, Tensor]:
        """Append what `nodes`, of one length, have after the rows of a held cache; their logits."""
        device = self._forward.device
        if source is None:
            config = self._forward.model.config
            config = config.get_text_config() if hasattr(config, "get_text_config") else config
            cache, start, first = transformers.DynamicCache(config=config), 0, PIECE
            if self._append_piece == 1:
                first = len(nodes[0])
        else:
            cache, start, first = source.select(rows, device), source.length, self._append_piece
        input_ids = torch.tensor([node.token_ids(start) for node in nodes], device=device)
        logits = None
        done = 0
        while done < input_ids.shape[1]:
            piece = input_ids[:, done : done + (first if done == 0 else self._append_piece)]
            last = torch.tensor([piece.shape[1] - 1], device=device)
            logits = self._forward(piece, last, cache=cache)[:, 0]
            done += piece.shape[1]
        assert logits is not None
        held = _Rows(cache, list(nodes))
        held.last_used = self._calls
        self._held.append(held)
        self._where.update({node: (held, row) for row, node in enumerate(nodes)})
        return dict(zip(nodes, logits, strict=True))

    def _shrink(self) -> None:
        """Forget sets of several rows but the latest, then what was used least recently."""
        loose = sorted((rows for rows in self._held if not rows.pinned), key=lambda rows: rows.last_used)
        several = [rows for rows in loose if len(rows.nodes) > 1]
        dropped = several[:-RECENT]
        left = self.n_bytes - sum(rows.n_bytes for rows in dropped)
        for rows in loose:
            if left <= self._limit:
                break
            if rows not in dropped:
                dropped.append(rows)
                left -= rows.n_bytes
        for rows in dropped:
            self._held.remove(rows)
            for node in rows.nodes:
                if self._where[node][0] is rows:
                    del self._where[node]
