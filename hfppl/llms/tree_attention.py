"""Attention of packed tokens to keys that lie in several places, each place read once.

The new tokens of all sequences form one packed row of T tokens. A block of keys (a shared prefix, or
the private ends of some sequences) is attended to by all the tokens that see it in one matrix product,
and the partial results are joined by their log-sum-exps: the softmax over a union of key sets is the
average of the softmaxes over the sets, weighted by their normalisers. This is the decomposition of
Hydragen (Juravsky et al. 2024, arXiv 2402.05099), here over a tree of prefixes instead of one.

Shapes: H query heads, Hkv key heads, G = H / Hkv, D the head's width, L layers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

SCORE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Settings:
    """How one layer weighs keys.

    scale: factor on the inner products.
    window: a token sees itself and window - 1 tokens before it; None: all before it.
    softcap: scores are squeezed to c tanh(s / c); None: left alone.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(eq=False)
class Block:
    """Keys and values in one place, and the packed tokens that look at them.

    Tokens are laid out as B rows of Q, some of which may be fillers whose results are dropped.

    keys, values: `(L, B', Hkv, S, D)` views of the store; B' = B unless `rows` selects.
    rows: `(B,)` which of the B' rows to read; None: all, in order.
    queries: Q.
    take: `(B * Q,)` packed index of the token at each place; None: all tokens in order.
    give: `(n,)` places whose results count; None: all.
    targets: `(n,)` packed index of the token each of those results belongs to; None: all in order.
    offsets: `(B, Q)` index of each token in the sequence of keys: it sees the keys up to that one.
    causal: whether `offsets` can hide keys at all (False: every key precedes every token).
    first, last: the smallest and largest offset of a token that counts.
    """

    keys: Tensor
    values: Tensor
    queries: int
    offsets: Tensor
    causal: bool
    first: int
    last: int
    rows: Tensor | None = None
    take: Tensor | None = None
    give: Tensor | None = None
    targets: Tensor | None = None
    _masks: dict[tuple[int, int | None], tuple[Tensor | None, Tensor | None]] = field(default_factory=dict)

    def partial(
        self, layer: int, query: Tensor, n_key_heads: int, settings: Settings
    ) -> tuple[Tensor, Tensor] | None:
        """Softmax over these keys alone: `(n, H, D)` float32 averages and `(n, H)` log-normalisers.

        Args:
            query: `(T, H, D)`.

        Returns:
            None if every key is out of every token's window.
        """
        low = self._lowest_visible(settings.window)
        n_keys = self.keys.shape[3]
        if low >= n_keys:
            return None
        if self.take is not None:
            query = query[self.take]
        n_heads, width = query.shape[1:]
        group = n_heads // n_key_heads
        n_rows = query.shape[0] // self.queries
        folded = query.view(n_rows, self.queries, n_key_heads, group, width).permute(0, 2, 3, 1, 4)
        folded = folded.reshape(n_rows, n_key_heads, group * self.queries, width)
        keys, values = self.keys[layer], self.values[layer]
        if low:
            keys, values = keys[..., low:, :], values[..., low:, :]
        if self.rows is not None:
            keys, values = keys[self.rows], values[self.rows]
        mask, blind = self._mask(group, settings.window, low, query.dtype)
        average, log_sum = attend(folded, keys, values, mask, settings)
        if blind is not None:
            log_sum = log_sum.masked_fill(blind, -math.inf)
        average = average.reshape(n_rows, n_heads, self.queries, -1).transpose(1, 2)
        log_sum = log_sum.reshape(n_rows, n_heads, self.queries).transpose(1, 2)
        average = average.reshape(n_rows * self.queries, n_heads, -1)
        log_sum = log_sum.reshape(n_rows * self.queries, n_heads)
        if self.give is not None:
            average, log_sum = average[self.give], log_sum[self.give]
        return average, log_sum

    def _lowest_visible(self, window: int | None) -> int:
        return 0 if window is None else max(0, self.first - window + 1)

    def _mask(
        self, group: int, window: int | None, low: int, dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """What to add to the scores, and which tokens see no key at all; made once for all layers alike."""
        found = self._masks.get((group, window))
        if found is not None:
            return found
        n_keys = self.keys.shape[3]
        mask = blind = None
        if self.causal or (window is not None and self.last - window >= low):
            index = torch.arange(low, n_keys, device=self.offsets.device)
            offsets = self.offsets.repeat(1, group)[:, None, :, None]  # (B, 1, G * Q, 1)
            visible = index <= offsets
            if window is not None:
                visible = visible & (index > offsets - window)
                # Only a window can hide all keys of a block; a token's own key is in its own block.
                unseeing = ~visible.any(-1)
                blind = unseeing if self.last - window >= n_keys - 1 else None
            mask = torch.zeros(visible.shape, dtype=dtype, device=index.device)
            mask = mask.masked_fill_(~visible, -math.inf)
        self._masks[group, window] = (mask, blind)
        return mask, blind


def attend_blocks(
    own: Sequence[Block],
    shared: Sequence[Block],
    layer: int,
    query: Tensor,
    n_key_heads: int,
    settings: Settings,
) -> tuple[Tensor, Tensor]:
    """Attention of every packed token to all blocks that it sees.

    Args:
        own: blocks that hold the tokens' own keys; each token belongs to exactly one.
        shared: blocks of keys that precede the tokens.
        query: `(T, H, D)`.

    Returns:
        `(T, H, D)` float32 averages of values, `(T, H)` log-normalisers.
    """
    # A token sees at least its own key, so that from here on no log-normaliser is -inf on the left side
    # of a join, and the difference of two is never NaN.
    average, log_sum = _first(own, layer, query, n_key_heads, settings)
    for block in shared:
        partial = block.partial(layer, query, n_key_heads, settings)
        if partial is None:
            continue
        if block.targets is None:
            average, log_sum = join(average, log_sum, *partial)
        else:
            some = join(average[block.targets], log_sum[block.targets], *partial)
            average[block.targets], log_sum[block.targets] = some
    return average, log_sum


def _first(
    own: Sequence[Block], layer: int, query: Tensor, n_key_heads: int, settings: Settings
) -> tuple[Tensor, Tensor]:
    parts = [block.partial(layer, query, n_key_heads, settings) for block in own]
    if len(own) == 1 and own[0].targets is None and parts[0] is not None:
        return parts[0]
    average = log_sum = None
    for block, part in zip(own, parts, strict=True):
        if part is None or block.targets is None:
            raise RuntimeError("a token cannot see its own key")
        if average is None or log_sum is None:
            average = query.new_empty((*query.shape[:2], part[0].shape[-1]), dtype=torch.float32)
            log_sum = query.new_empty(query.shape[:2], dtype=torch.float32)
        average[block.targets], log_sum[block.targets] = part
    if average is None or log_sum is None:
        raise RuntimeError("no tokens to attend for")
    return average, log_sum


def join(average: Tensor, log_sum: Tensor, other: Tensor, other_log_sum: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the union of two disjoint sets of keys, from the softmaxes over each.

    `log_sum` `(n, H)` must be finite; `other_log_sum` may be -inf where the second set is empty.
    """
    weight = torch.sigmoid(other_log_sum - log_sum).unsqueeze(-1)
    return torch.lerp(average, other, weight), torch.logaddexp(log_sum, other_log_sum)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Softmax attention and its normaliser, by the fastest kernel that gives both.

    Args:
        query: `(B, Hkv, M, D)`; keys, values: `(B, Hkv, S, D)`; mask: `(B, 1, M, S)` added to the scores.

    Returns:
        `(B, Hkv, M, D)` float32 averages and `(B, Hkv, M)` float32 log-sum-exps of the scores; where a
        row of the mask is -inf throughout, both are unspecified but not NaN.
    """
    if settings.softcap is None and _cpu_kernel_works(query.device.type, query.dtype):
        average, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, 0.0, False, attn_mask=mask, scale=settings.scale
        )
        return average.float(), log_sum.float()
    # Bound the score matrix, which the public operations need whole.
    step = max(1, SCORE_BYTES // (4 * query.shape[0] * query.shape[1] * keys.shape[2]))
    if step >= query.shape[2]:
        return attend_by_scores(query, keys, values, mask, settings)
    pieces = [
        attend_by_scores(
            query[:, :, start : start + step],
            keys,
            values,
            None if mask is None else mask[:, :, start : start + step],
            settings,
        )
        for start in range(0, query.shape[2], step)
    ]
    return torch.cat([piece[0] for piece in pieces], 2), torch.cat([piece[1] for piece in pieces], 2)


def attend_by_scores(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, settings: Settings
) -> tuple[Tensor, Tensor]:
    """`attend` in public operations and float32: the plain twin of the kernels."""
    scores = torch.matmul(query.float() * settings.scale, keys.float().transpose(-1, -2))
    if settings.softcap is not None:
        scores = torch.tanh(scores / settings.softcap) * settings.softcap
    if mask is not None:
        scores = scores + mask
    peak = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    weights = torch.exp(scores - peak)
    total = weights.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    average = torch.matmul(weights, values.float()) / total
    return average, (peak + torch.log(total)).squeeze(-1)


_CPU_KERNEL: dict[torch.dtype, bool] = {}


def _cpu_kernel_works(device_type: str, dtype: torch.dtype) -> bool:
    """Whether torch's CPU kernel that returns log-sum-exps exists here and agrees with the plain twin.

    It is not a public operation, so that its presence and meaning are checked, once for each dtype.
    """
    if device_type != "cpu":
        return False
    if dtype not in _CPU_KERNEL:
        generator = torch.Generator().manual_seed(0)
        query, keys, values = (
            torch.randn((2, 3, size, 8), generator=generator).to(dtype) for size in (5, 7, 7)
        )
        mask = torch.zeros((2, 1, 5, 7), dtype=dtype)
        mask[:, :, 1, 3:] = -math.inf
        settings = Settings(scale=0.3)
        expected = attend_by_scores(query, keys, values, mask, settings)
        try:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query, keys, values, 0.0, False, attn_mask=mask, scale=settings.scale
            )
            tolerance = 1e-5 if dtype == torch.float32 else 3e-2
            _CPU_KERNEL[dtype] = all(
                a.shape == b.shape and torch.allclose(a.float(), b, atol=tolerance)
                for a, b in zip(found, expected, strict=True)
            )
        except (AttributeError, RuntimeError, TypeError, ValueError):
            _CPU_KERNEL[dtype] = False
    return _CPU_KERNEL[dtype]
