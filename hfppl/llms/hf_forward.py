"""One way of calling a transformers causal language model, whatever its class.

Signatures differ between architectures and releases: the cache argument has two names, some models
take no positions, some cannot restrict the head to the positions asked about. All of that is settled
here once, from the signature, so that the evaluators above only say what they want computed. The model
is called, never its parts: hooks and adapters of the user fire as in a call of their own.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .fast_linear import FastLinears

LOGITS_BYTES_PER_PASS = 512 * 2**20
TOKENS_PER_PASS = 4096


class CausalForward:
    """Calls of one model that compute rows of logits.

    Attributes:
        model: the module.
        n_logits: length of a row of logits, known after the first call; 0 before.
        passes: forward passes so far.
        tokens: tokens that went through the model so far.
        fast_linears: layers to be replaced during passes; None: none.
    """

    def __init__(self, model: Any, fast_linears: FastLinears | None = None) -> None:
        self.model = model
        self.fast_linears = fast_linears
        self.n_logits = 0
        self.passes = 0
        self.tokens = 0
        parameters = _parameters(model)
        self.takes_positions = "position_ids" in parameters
        self._takes_kept_positions = "logits_to_keep" in parameters
        self._takes_use_cache = "use_cache" in parameters
        names = ("cache", "past_key_values")
        self.cache_argument = next((name for name in names if name in parameters), None)

    @property
    def device(self) -> torch.device:
        """Where token ids must lie: the device of the input embedding (a model may span several)."""
        embedding = self.model.get_input_embeddings()
        weight = getattr(embedding, "weight", None)
        if isinstance(weight, Tensor):
            return weight.device
        parameter: Tensor = next(iter(self.model.parameters()))
        return parameter.device

    def rows_per_pass(self) -> int:
        """How many rows of logits one pass may compute, so that they alone cannot fill the memory."""
        # The model's own dtype and the float32 copy exist side by side: count each row twice.
        return max(1, LOGITS_BYTES_PER_PASS // (8 * max(1, self.n_logits)))

    @torch.inference_mode()
    def __call__(
        self,
        input_ids: Tensor,
        keep: Tensor,
        *,
        position_ids: Tensor | None = None,
        cache: Any = None,
    ) -> Tensor:
        """Logits at some positions of every sequence of a batch.

        Args:
            input_ids: `(B, T)` token ids.
            keep: `(K,)` positions along T whose logits are wanted.
            position_ids: `(B, T)`, where they are not simply 0 to T - 1.
            cache: what the attention layers hand their keys and values to; nothing is kept without.

        Returns:
            `(B, K, n_logits)` float32, in main memory, fetched from the device in one copy.
        """
        arguments: dict[str, Any] = {}
        if position_ids is not None:
            arguments["position_ids"] = position_ids
        if cache is not None and self.cache_argument is not None:
            arguments[self.cache_argument] = cache
        if self._takes_use_cache:
            arguments["use_cache"] = cache is not None
        if self._takes_kept_positions:
            arguments["logits_to_keep"] = keep
        fast = nullcontext() if self.fast_linears is None else self.fast_linears.applied()
        with evaluation_mode(self.model), fast:
            logits: Tensor = self.model(input_ids=input_ids, **arguments).logits
        self.passes += 1
        self.tokens += input_ids.numel()
        if logits.shape[1] != len(keep) or not self._takes_kept_positions:
            logits = logits[:, keep.to(logits.device)]
        self.n_logits = logits.shape[-1]
        return logits.float().cpu()


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Dropout and the like switched off within; each submodule's own mode restored after."""
    training = []
    waiting = [model]  # `model.modules()` takes ten times as long, and this runs before every pass
    while waiting:
        module = waiting.pop()
        if module.training:
            training.append(module)
        waiting += [child for child in module._modules.values() if child is not None]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _parameters(model: Any) -> set[str]:
    """Names of the arguments that a model takes."""
    parameters = inspect.signature(model.forward).parameters
    names = set(parameters)
    base = getattr(model, "get_base_model", None)
    if base is not None and any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        names |= _parameters(base())  # an adapter around a model hands on what it does not know
    return names


def max_positions(config: Any) -> int | None:
    """The longest sequence a model was made for, in tokens; None where its configuration names no limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        limit = getattr(text, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, so that a smaller batch may yet succeed."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
