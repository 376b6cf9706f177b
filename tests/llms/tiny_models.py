"""Tiny, randomly initialised transformers models of many architectures, made from configurations alone."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

from hfppl.llms.prefix import Prefix

VOCABULARY = 61
WINDOW = 7  # of models with sliding windows; the sequences of the tests are longer

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
# Weights large enough for attention to be far from uniform: else a wrong mask would hardly show.
LARGE = {"initializer_range": 0.4}


def _grouped(**extra: Any) -> dict[str, Any]:
    return SIZES | LARGE | {"num_key_value_heads": 2} | extra


def _build(name: str) -> Any:
    match name:
        case "gpt2":
            config = tf.GPT2Config(
                vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=160, bos_token_id=0,
                eos_token_id=1, **LARGE,
            )  # fmt: skip
        case "gpt_neox":
            config = tf.GPTNeoXConfig(**SIZES, **LARGE)
        case "opt":
            config = tf.OPTConfig(
                vocab_size=VOCABULARY, hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4,
                max_position_embeddings=160, word_embed_proj_dim=32, init_std=0.4, pad_token_id=1,
            )  # fmt: skip
        case "llama":
            config = tf.LlamaConfig(**_grouped())
        case "mistral":
            config = tf.MistralConfig(**_grouped(sliding_window=WINDOW))
        case "qwen2":
            config = tf.Qwen2Config(
                **_grouped(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
            )
        case "qwen3":
            config = tf.Qwen3Config(**_grouped(head_dim=16))
        case "gemma2":
            config = tf.Gemma2Config(
                **_grouped(head_dim=16, sliding_window=WINDOW, query_pre_attn_scalar=12),
                attn_logit_softcapping=2.0,
            )
        case "gemma3":
            config = tf.Gemma3TextConfig(
                **_grouped(head_dim=16, sliding_window=WINDOW, query_pre_attn_scalar=12),
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            )
        case "phi3":
            config = tf.Phi3Config(**_grouped())
        case "falcon":
            config = tf.FalconConfig(
                vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
                max_position_embeddings=160, bos_token_id=0, eos_token_id=1, **LARGE,
            )  # fmt: skip
        case "bloom":
            config = tf.BloomConfig(
                vocab_size=VOCABULARY, hidden_size=32, n_layer=3, n_head=4,
                hidden_dropout=0.3, bos_token_id=0, eos_token_id=1,
                **LARGE,
            )  # fmt: skip
        case "mamba":
            config = tf.MambaConfig(
                vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, state_size=8, bos_token_id=0,
                eos_token_id=1, pad_token_id=0, **LARGE,
            )  # fmt: skip
        case "gpt_oss":
            config = tf.GptOssConfig(
                **_grouped(head_dim=16, sliding_window=WINDOW), num_local_experts=2, num_experts_per_tok=1,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            )  # fmt: skip
        case _:
            raise KeyError(name)
    return tf.AutoModelForCausalLM.from_config(config)


INCREMENTAL = (
    "gpt2",
    "gpt_neox",
    "opt",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt_oss",
)
OWN_CACHE = ("falcon", "bloom", "mamba")


def tiny_model(name: str, seed: int = 0, change: Callable[[Any], None] | None = None) -> Any:
    """A model in evaluation mode, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _build(name)
    if change is not None:
        change(model.config)
    return model.eval()


@torch.inference_mode()
def whole_logprobs(model: Any, prefix: Prefix) -> torch.Tensor:
    """Log-probabilities `(V,)` after a sequence by one uncached call of the model on it alone."""
    logits = model(input_ids=torch.tensor([prefix.token_ids()]), use_cache=False).logits
    return torch.log_softmax(logits[0, -1].float(), -1)


def largest_error(model: Any, prefixes: Any, rows: Any) -> float:
    """Largest difference in log-probability between rows of logits and plain uncached calls."""
    errors = [
        (torch.log_softmax(torch.tensor(row), -1) - whole_logprobs(model, prefix)).abs().max().item()
        for prefix, row in zip(prefixes, rows, strict=True)
    ]
    return max(errors, default=0.0)
