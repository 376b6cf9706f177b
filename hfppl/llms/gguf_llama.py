"""Turn a GGUF file of a small Llama into a folder that transformers loads in a second.

The weights are dequantised to float32, which is exact: a Q4_1 or Q8_0 value is a float16 scale times a
small integer, too long for float16 or bfloat16. The file is read here rather than through transformers
because its reader takes the pre-tokenizer of GPT-2 whatever the file names, so that blank space before a
digit would be cut into other tokens than the model was trained on.

Not handled: other architectures, other pre-tokenizers, scaled rotary embeddings, sharded files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CONTROL_TOKEN = 3  # the token type of GGUF for tokens that are markers, not text

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf_llama(
    gguf_path: Path, folder: Path, *, on_tensor: Callable[[int, int], None] | None = None
) -> None:
    """Write the model and the tokenizer of a GGUF file into an existing folder.

    Args:
        gguf_path: a GGUF file of architecture `llama` with a `smollm` byte-level BPE tokenizer.
        folder: receives `config.json`, `generation_config.json`, `model.safetensors` (float32) and the
            tokenizer's files.
        on_tensor: called with (tensors done, tensors in all) after each one.

    Raises:
        ValueError: if the file is of another architecture or tokenizer, or holds an unknown tensor.
        OSError: if a file cannot be read or written.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf_path)
    # Lists of tens of thousands of entries are decoded once, here.
    fields: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    _require(fields, "general.architecture", "llama")
    _require(fields, "tokenizer.ggml.model", "gpt2")
    _require(fields, "tokenizer.ggml.pre", "smollm")
    _save_tokenizer(fields, folder)
    tied = not any(tensor.name == "output.weight" for tensor in reader.tensors)
    _save_config(fields, folder, tied=tied)
    _save_weights(fields, reader.tensors, folder, on_tensor)


def _require(fields: dict[str, Any], name: str, expected: str) -> None:
    if fields.get(name) != expected:
        raise ValueError(f"the GGUF file must have {name} = {expected!r}, it has {fields.get(name)!r}")


def _save_config(fields: dict[str, Any], folder: Path, *, tied: bool) -> None:
    from transformers import GenerationConfig, LlamaConfig

    special_ids = {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=tied,
        **special_ids,
    )
    config.save_pretrained(folder)
    GenerationConfig(**special_ids).save_pretrained(folder)


def _save_weights(
    fields: dict[str, Any],
    tensors: list[Any],
    folder: Path,
    on_tensor: Callable[[int, int], None] | None,
) -> None:
    from gguf.quants import dequantize
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    heads = {
        "attn_q": int(fields["llama.attention.head_count"]),
        "attn_k": int(fields["llama.attention.head_count_kv"]),
    }
    weights: dict[str, NDArray[np.float32]] = {}
    for done, tensor in enumerate(tensors, start=1):
        weight = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name, part = _tensor_name(tensor.name)
        weights[name] = _rotary_by_halves(weight, heads[part]) if part in heads else weight
        if on_tensor is not None:
            on_tensor(done, len(tensors))
    weights_path = folder / "model.safetensors"
    try:
        save_file(weights, weights_path, metadata={"format": "pt"})
    except SafetensorError as error:  # the arrays are sound, so it is the disk
        raise OSError(str(error)) from error
    # It is made readable by its owner alone; it holds no secret, and a cache may be shared.
    weights_path.chmod((folder / "config.json").stat().st_mode)


def _tensor_name(gguf_name: str) -> tuple[str, str]:
    """The transformers name of a tensor and which part of a block it is ("" outside the blocks).

    `blk.7.attn_q.weight` is `model.layers.7.self_attn.q_proj.weight`, part `attn_q`.
    """
    if gguf_name in _OUTER_NAMES:
        return _OUTER_NAMES[gguf_name], ""
    pieces = gguf_name.split(".")
    if len(pieces) != 4 or pieces[0] != "blk" or pieces[2] not in _BLOCK_NAMES or pieces[3] != "weight":
        raise ValueError(f"the GGUF file holds a tensor that a plain Llama has not: {gguf_name!r}")
    return f"model.layers.{pieces[1]}.{_BLOCK_NAMES[pieces[2]]}.weight", pieces[2]


def _rotary_by_halves(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Reorder the rows of a query or key projection, (n_heads * head_dim, hidden) to the same shape.

    A rotary embedding turns pairs of coordinates. GGUF stores a pair side by side (0 1, 2 3, ...);
    transformers pairs coordinate i with i + head_dim / 2.
    """
    pairs = weight.reshape(n_heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _save_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_byte_level_bpe(
            tokens, fields["tokenizer.ggml.merges"], fields["tokenizer.ggml.token_type"]
        ),
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    tokenizer.save_pretrained(folder)


def _byte_level_bpe(tokens: list[str], merges: list[str], token_types: list[int]) -> Tokenizer:
    """The `smollm` tokenizer: digits one by one, then the byte-level words of GPT-2, then merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, token_type in zip(tokens, token_types, strict=True)
            if token_type == _CONTROL_TOKEN
        ]
    )
    return tokenizer
