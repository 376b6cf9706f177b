"""Our attention inside a transformers model, for the length of one forward pass of ours.

The library lets one register an attention function under a name, and reads the name from the model's
configuration whenever a layer runs. The name is set before a pass of ours and set back after it. Should
another thread run the model in between, or another model that shares the configuration object, its calls
find no pass of ours in their thread and go to the function and the mask they would have gone to anyway.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from .tree_attention import Block, Settings, attend_blocks

NAME = "hfppl_prefix_tree"

# What a layer may pass without meaning more than plain attention, whatever the value.
HARMLESS = frozenset(
    {"dropout", "position_ids", "use_cache", "output_router_logits", "output_attentions", "cache_position"}
    | {"output_hidden_states", "is_causal", "return_dict", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q"}
    | {"max_length_k", "num_items_in_batch", "logits_to_keep"}
)
UNDERSTOOD = frozenset({"scaling", "sliding_window", "softcap", "s_aux"})


class AttentionPass:
    """What attention layers find of ours during one forward pass; also the cache the model is given.

    Args:
        own, shared: the blocks of keys (see `attend_blocks`).
        write: takes a layer's index and its new keys and values `(1, Hkv, T, D)`.
    """

    is_compileable = False

    def __init__(
        self, own: list[Block], shared: list[Block], write: Callable[[int, Tensor, Tensor], None]
    ) -> None:
        self._own = own
        self._shared = shared
        self._write = write

    # The part of a transformers cache that models use

    @property
    def is_sliding(self) -> list[bool]:
        """No layer forgets keys; windows are a matter of the blocks' masks."""
        return [False]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values, and hand back just these."""
        self._write(layer_idx, keys, values)
        return keys, values

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Positions are always given explicitly, so nothing counts from here."""
        return 0

    def get_query_offset(self, *_: Any, **__: Any) -> int:
        """Asked for a mask that is not made."""
        return 0

    def get_mask_sizes(self, query_length: Any, *_: Any, **__: Any) -> tuple[Any, int]:
        """Asked for a mask that is not made."""
        return query_length, 0

    # The attention function

    def attend(
        self, module: Any, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any]
    ) -> Tensor:
        """One layer's attention: `(1, T, H, D)`, of queries `(1, H, T, D)`."""
        settings = read_settings(mask, options)
        average, log_sum = attend_blocks(
            self._own, self._shared, module.layer_idx, query[0].transpose(0, 1), key.shape[1], settings
        )
        sinks = options.get("s_aux")
        if sinks is not None:  # a key with this score and no value
            average = average * torch.sigmoid(log_sum - sinks.float().reshape(-1)).unsqueeze(-1)
        return average.to(query.dtype).unsqueeze(0)


class UnsupportedAttentionError(Exception):
    """A layer asks for attention of a kind that is not implemented here (caught by the probe)."""


def read_settings(mask: Tensor | None, options: Mapping[str, Any]) -> Settings:
    """What a layer's keyword arguments mean.

    Raises:
        UnsupportedAttentionError: one of them means something unknown.
    """
    if mask is not None:
        raise UnsupportedAttentionError("the model makes attention masks of its own")
    for name, value in options.items():
        if value is not None and name not in HARMLESS and name not in UNDERSTOOD:
            raise UnsupportedAttentionError(f"attention with {name!r} is not implemented")
    if options.get("scaling") is None:
        raise UnsupportedAttentionError("the model does not say how it scales attention scores")
    return Settings(
        scale=float(options["scaling"]), window=options.get("sliding_window"), softcap=options.get("softcap")
    )


class _Here(threading.local):
    """The pass that runs in this thread."""

    current: AttentionPass | None = None


@dataclass(eq=False)
class _Switched:
    """A configuration whose attention we have ever set: what it said before, and for how many passes now."""

    config: "weakref.ref[Any]"
    original: str | None
    passes: int = 0


_HERE = _Here()
_SWITCHED: dict[int, _Switched] = {}
_LOCK = threading.Lock()


def _tree_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    current = _HERE.current
    if current is not None:
        return current.attend(module, query, key, attention_mask, options), None
    name = _original_name(module.config)
    if name is None or name == "eager":
        function = sys.modules[type(module).__module__].eager_attention_forward
    else:
        function = AttentionInterface()[name]
    result: tuple[Tensor, Tensor | None] = function(module, query, key, value, attention_mask, **options)
    return result


def _tree_mask(*args: Any, config: Any = None, **options: Any) -> Any:
    if _HERE.current is not None:
        return None
    masks = AttentionMaskInterface()
    name = _original_name(config)
    return masks[name](*args, config=config, **options) if name in masks else None


def _original_name(config: Any) -> str | None:
    entry = _SWITCHED.get(id(config))
    return None if entry is None or entry.config() is not config else entry.original


AttentionInterface.register(NAME, _tree_attention)
AttentionMaskInterface.register(NAME, _tree_mask)


def configurations(model: Any) -> list[Any]:
    """The configuration objects that a model's modules read, outermost first."""
    found: dict[int, Any] = {}
    waiting = [model.config]
    while waiting:
        config = waiting.pop(0)
        found[id(config)] = config
        within = [getattr(config, name, None) for name in config.sub_configs]
        waiting += [each for each in within if each is not None]
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            found.setdefault(id(config), config)
    return list(found.values())


@contextmanager
def attention_of(configs: list[Any], current: AttentionPass) -> Iterator[None]:
    """Let the models with these configurations use a pass of ours, in this thread and only within."""
    outer, _HERE.current = _HERE.current, current
    switched = []
    try:
        with _LOCK:
            for config in configs:
                switched.append(_switch(config))
        yield
    finally:
        _HERE.current = outer
        with _LOCK:
            for entry in switched:
                entry.passes -= 1
            # The setter hands a value down to the configurations within, so the outermost goes first.
            for config, entry in zip(configs, switched, strict=False):
                config._attn_implementation = NAME if entry.passes else entry.original


def _switch(config: Any) -> _Switched:
    entry = _SWITCHED.get(id(config))
    if entry is None or entry.config() is not config:
        entry = _SWITCHED[id(config)] = _Switched(weakref.ref(config), None)
    if not entry.passes:
        entry.original = config._attn_implementation
    entry.passes += 1
    config._attn_implementation = NAME
    return entry
