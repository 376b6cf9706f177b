"""How a model can be evaluated, the fastest way first: found out by trying.

What model classes declare about their attention is not reliable in either direction. So one forward pass
counts the calls that reach us and looks at what the layers ask for, and then a small tree of sequences is
evaluated both ways, ours and plainly. A model takes a way only if it passes everything.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .hf_attention import AttentionPass, attention_of, configurations, read_settings
from .hf_forward import CausalForward
from .hf_plain import PlainEvaluator
from .hf_rows import PIECE, RowsEvaluator
from .hf_tree import TreeEvaluator
from .kv_stretch import KVShape
from .prefix import Prefix

# Rotary embeddings whose frequencies change with the longest position at hand: keys computed early
# would differ from those of one pass over the whole sequence.
CHANGING_ROTARY = {"dynamic", "longrope"}


NO_LIMIT = 2**62  # bytes
# Nats between two ways of computing a log-probability that are both right. Half precision rounds at other
# places in each, and an extreme over the vocabulary says little; gross errors show in the mean.
FULL_BOUND = 2e-3
HALF_BOUND = 0.3
HALF_SLACK = 0.1


class Evaluator(Protocol):
    """What computes rows of logits, in one way or another."""

    reused: int
    """Tokens so far that did not have to be computed again."""

    @property
    def n_bytes(self) -> int:
        """Memory of what is kept."""
        ...

    def evaluate(self, prefixes: Sequence[Prefix]) -> list[Tensor]:
        """One row `(n_logits,)` of float32 logits for each sequence, distinct and not empty, in order."""
        ...

    def keep(self, prefix: Prefix) -> None:
        """Hold on to what makes continuations of a sequence cheap, whatever the limit, until `clear`."""
        ...

    def clear(self) -> None:
        """Forget everything and release the memory."""
        ...


class _Unfit(Exception):  # noqa: N818
    """Why a model cannot take the fast path."""


class _Recorder(AttentionPass):
    """A pass that notes how layers call it and computes nothing."""

    def __init__(self) -> None:
        super().__init__([], [], lambda layer, keys, values: None)
        self.updates: Counter[int] = Counter()
        self.calls: Counter[int] = Counter()
        self.shapes: set[tuple[int, int, int, torch.dtype, torch.device]] = set()
        self.windows: dict[int, int | None] = {}

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.updates[layer_idx] += 1
        self.shapes.add((keys.shape[1], keys.shape[3], values.shape[3], keys.dtype, keys.device))
        return keys, values

    def attend(
        self, module: Any, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any]
    ) -> Tensor:
        self.windows[module.layer_idx] = read_settings(mask, options).window
        self.calls[module.layer_idx] += 1
        (_, _, value_width, _, _), *_ = self.shapes
        return query.new_zeros((query.shape[0], query.shape[2], query.shape[1], value_width))


def probe(forward: CausalForward, limit: int) -> tuple[Evaluator, str]:
    """The best evaluator that a model can have, and in words what it does, and why nothing better.

    Args:
        limit: bytes of keys and values that the evaluator may hold.
    """
    plain = PlainEvaluator(forward)
    config = forward.model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    changing = _rotary_types(config) & CHANGING_ROTARY
    if changing:
        kind = sorted(changing)[0]
        return plain, f"every sequence is computed whole: its {kind!r} rotary embedding depends on the length"

    n_ids = _vocabulary(forward)
    is_half = next(iter(forward.model.parameters())).dtype not in (torch.float32, torch.float64)

    def try_tree() -> TreeEvaluator:
        shape = _record(forward, config)
        half_bound = None
        if is_half:  # what the library's own decoding with a cache differs by, is no fault of ours
            half_bound = 2 * _deviation(RowsEvaluator(forward, NO_LIMIT), plain, n_ids)[1] + HALF_SLACK
        _check(TreeEvaluator(forward, shape, NO_LIMIT), plain, n_ids, half_bound)
        return TreeEvaluator(forward, shape, limit)

    def try_rows(append_piece: int) -> RowsEvaluator:
        if forward.cache_argument is None:
            raise _Unfit("the model takes no cache")
        half_bound = HALF_BOUND if is_half else None
        _check(RowsEvaluator(forward, NO_LIMIT, append_piece), plain, n_ids, half_bound)
        return RowsEvaluator(forward, limit, append_piece)

    ways: list[tuple[Callable[[], Evaluator], str]] = [
        (try_tree, "keys and values are kept, shared ones attended to once"),
        (lambda: try_rows(PIECE), "every sequence has a cache of its own"),
        (lambda: try_rows(1), "every sequence has a cache of its own, and grows token by token"),
    ]
    reasons: list[str] = []
    for way, description in ways:
        try:
            return way(), "; ".join([description, *reasons])
        except _Unfit as error:
            reasons.append(f"not otherwise, because {error}")
        except Exception as error:  # whatever a model does when it is run in a way it does not know
            reasons.append(f"not otherwise, because trying gave {type(error).__name__}: {error}")
    return plain, "; ".join(["every sequence is computed whole", *reasons])


def _vocabulary(forward: CausalForward) -> int:
    weight = getattr(forward.model.get_input_embeddings(), "weight", None)
    return min(forward.n_logits, len(weight)) if isinstance(weight, Tensor) else forward.n_logits


def _record(forward: CausalForward, config: Any) -> KVShape:
    """How the model calls our attention; raises `_Unfit` if not exactly as a plain decoder does."""
    if forward.cache_argument is None or not forward.takes_positions:
        raise _Unfit("the model takes no cache or no positions")
    recorder = _Recorder()
    input_ids = torch.tensor([[1 % _vocabulary(forward)] * 5], device=forward.device)
    positions = torch.arange(5, device=forward.device)[None]
    with attention_of(configurations(forward.model), recorder):
        forward(input_ids, positions[0, -1:], position_ids=positions, cache=recorder)
    n_layers = getattr(config, "num_hidden_layers", len(recorder.calls))
    once = Counter(range(n_layers))
    if recorder.calls != once or recorder.updates != once:
        raise _Unfit("not every layer is attention that can be replaced")
    if len(recorder.shapes) != 1:
        raise _Unfit("its layers differ in the shape or place of their keys")
    _check_windows(config, recorder.windows)
    n_heads, key_width, value_width, dtype, device = recorder.shapes.pop()
    return KVShape(n_layers, n_heads, key_width, value_width, dtype, device)


def _rotary_types(config: Any) -> set[str]:
    found = set()
    waiting = [getattr(config, "rope_parameters", None), getattr(config, "rope_scaling", None)]
    while waiting:
        parameters = waiting.pop()
        if isinstance(parameters, dict):  # one for all layers, or one for each kind of layer
            found |= {str(parameters.get(name)) for name in ("rope_type", "type") if parameters.get(name)}
            waiting += parameters.values()
    return found


def _check_windows(config: Any, windows: dict[int, int | None]) -> None:
    """What layers ask for must be what the configuration says: a window might be in a mask alone."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        if window is not None and getattr(config, "use_sliding_window", True) and not any(windows.values()):
            raise _Unfit("its sliding window is not told to the attention function")
        return
    for layer, kind in enumerate(kinds[: len(windows)]):
        if kind not in ("full_attention", "sliding_attention"):
            raise _Unfit(f"layers of type {kind!r} are not implemented")
        if windows[layer] != (window if kind == "sliding_attention" else None):
            raise _Unfit("a layer's sliding window is not what the configuration says")


def _check(evaluator: Evaluator, plain: PlainEvaluator, n_ids: int, half_bound: float | None) -> None:
    """Raises `_Unfit` if log-probabilities differ from the plain ones by more than rounding.

    Args:
        half_bound: largest mean difference in half precision, in nats; None in full precision.
    """
    largest, mean = _deviation(evaluator, plain, n_ids)
    if not (largest <= FULL_BOUND if half_bound is None else mean <= half_bound):
        amount = f"up to {largest:.2g}, {mean:.2g} on average"
        raise _Unfit(f"log-probabilities differ from those of whole sequences by {amount}")


def _deviation(evaluator: Evaluator, plain: PlainEvaluator, n_ids: int) -> tuple[float, float]:
    """Largest and mean difference in log-probability over a prompt, its children, forks and longer steps."""
    prompt = Prefix.root().descend((7 * index + 1) % n_ids for index in range(12))
    children = [prompt.child(index % n_ids) for index in (2, 3, 5)]
    longer = [children[0].child(1 % n_ids), children[0].descend([4 % n_ids, 2 % n_ids]), children[1].child(0)]
    differences = []
    for batch in ([prompt], children, longer):
        batch = list(dict.fromkeys(batch))
        found = torch.log_softmax(torch.stack(evaluator.evaluate(batch)), -1)
        expected = torch.log_softmax(torch.stack(plain.evaluate(batch)), -1)
        differences.append((found - expected).abs())
    together = torch.cat(differences)
    return together.max().item(), together.mean().item()  # a NaN anywhere is NaN here
