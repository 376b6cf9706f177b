"""The raw floor: what the bare transformer costs, with nothing around it."""

import time
from typing import Any

import torch
import transformers

from hfppl.llms.hf_forward import CausalForward


def floor(model: Any, prompt: list[int], columns: list[list[int]]) -> list[float]:
    """Seconds of the prefill, then of each step of N continuations of one prompt.

    The prompt's cache is copied for each of them; a step is one batched forward pass and a log-softmax.

    Args:
        columns: for each step, N token ids.
    """
    name = CausalForward(model).cache_argument or "past_key_values"
    seconds = []
    with torch.inference_mode():
        start = time.perf_counter()
        cache = transformers.DynamicCache()
        out = model(torch.tensor([prompt]), **{name: cache}, use_cache=True, logits_to_keep=1)
        torch.log_softmax(out.logits[:, -1].float(), -1)
        cache.batch_repeat_interleave(len(columns[0]))
        seconds.append(time.perf_counter() - start)
        for column in columns:
            start = time.perf_counter()
            out = model(torch.tensor(column)[:, None], **{name: cache}, use_cache=True, logits_to_keep=1)
            torch.log_softmax(out.logits[:, -1].float(), -1).numpy()
            seconds.append(time.perf_counter() - start)
    return seconds


def generate(model: Any, prompt: list[int], n_sequences: int, n_tokens: int) -> float:
    """Seconds of transformers' own sampling, without any constraint."""
    start = time.perf_counter()
    model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        do_sample=True,
        num_return_sequences=n_sequences,
        min_new_tokens=n_tokens,
        max_new_tokens=n_tokens,
        pad_token_id=0,
    )
    return time.perf_counter() - start
