"""The conversion of a GGUF file: a tiny Llama written as GGUF must come back as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

from hfppl.llms.gguf_llama import convert_gguf_llama

HIDDEN, HEADS, KV_HEADS, BLOCKS, CONTEXT = 64, 4, 2, 2, 128
MARKERS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<file_sep>"]  # the last has no role
# Ġ is a space and Ċ a line feed in the alphabet of byte-level BPE.
TEXT_TOKENS = ["a", "b", "c", "0", "1", "2", "Ġ", "Ċ", "Ã", "©", "Ġa", "ĠĠ", "bc", "12"]
MERGES = ["Ġ a", "Ġ Ġ", "b c", "1 2"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['content'] + '<|im_end|>' }}{% endfor %}"
)
TOKENS = MARKERS + TEXT_TOKENS
PART_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tiny_llama(*, tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=tied,
        initializer_range=0.3,  # far from uniform, so that a wrong rotation shows
    )
    return LlamaForCausalLM(config).eval()


def gguf_name(name: str) -> str:
    outer = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outer:
        return outer[name]
    _, _, block, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{block}.{PART_NAMES[part]}.weight"


def side_by_side(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows i and i + head_dim / 2 of each head, written out one by one as neighbours 2i and 2i + 1."""
    head_dim = weight.shape[0] // n_heads
    rows = [
        head * head_dim + i + half * head_dim // 2
        for head in range(n_heads)
        for i in range(head_dim // 2)
        for half in (0, 1)
    ]
    return weight[rows]


def write_gguf(path: Path, model: LlamaForCausalLM, changes: dict[str, str] | None = None) -> None:
    """Write `model`, its projections rounded to Q8_0 in place, so that the file holds it exactly."""
    strings = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"} | (changes or {})
    writer = GGUFWriter(path, strings.pop("general.architecture", "llama"))
    for name, value in strings.items():
        writer.add_string(name, value)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(MARKERS) + [1] * len(TEXT_TOKENS))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    tied = model.config.tie_word_embeddings
    for name, parameter in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        weight = parameter.numpy()
        quantised = "_proj" in name
        if quantised:
            blocks = quantize(weight, GGMLQuantizationType.Q8_0)
            weight = dequantize(blocks, GGMLQuantizationType.Q8_0).copy()
            parameter.copy_(torch.from_numpy(weight))
        if "q_proj" in name or "k_proj" in name:
            weight = side_by_side(weight, HEADS if "q_proj" in name else KV_HEADS)
        if quantised:
            writer.add_tensor(
                gguf_name(name),
                quantize(weight, GGMLQuantizationType.Q8_0),
                raw_dtype=GGMLQuantizationType.Q8_0,
            )
        else:
            writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def converted(tmp_path: Path, *, tied: bool = True) -> tuple[LlamaForCausalLM, Path]:
    model = tiny_llama(tied=tied)
    write_gguf(tmp_path / "tiny.gguf", model)
    folder = tmp_path / "folder"
    folder.mkdir()
    convert_gguf_llama(tmp_path / "tiny.gguf", folder)
    return model, folder


@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_come_back_exactly(tmp_path: Path, tied: bool) -> None:
    model, folder = converted(tmp_path, tied=tied)
    reloaded = AutoModelForCausalLM.from_pretrained(folder)
    expected, actual = model.state_dict(), reloaded.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert {parameter.dtype for parameter in reloaded.parameters()} == {torch.float32}
    assert reloaded.config.tie_word_embeddings is tied
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "a file is readable by fewer people"


def test_the_converted_model_computes_the_same_logits(tmp_path: Path) -> None:
    model, folder = converted(tmp_path)
    reloaded = AutoModelForCausalLM.from_pretrained(folder)
    token_ids = torch.arange(len(TOKENS)).unsqueeze(0)
    with torch.no_grad():
        expected, actual = model(token_ids).logits, reloaded(token_ids).logits
        scrambled = tiny_llama(tied=True)
        scrambled.load_state_dict(model.state_dict())
        query = scrambled.model.layers[0].self_attn.q_proj.weight
        query.copy_(torch.from_numpy(side_by_side(query.numpy().copy(), HEADS)))
        wrong = scrambled(token_ids).logits
    assert (wrong - expected).abs().max() > 1e-2, "the order of the rows does not show in these logits"
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_special_tokens_are_kept(tmp_path: Path) -> None:
    _, folder = converted(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        MARKERS[1],
        MARKERS[2],
        MARKERS[2],
    )
    assert tokenizer("<|im_start|>a<|im_end|>").input_ids == [1, TOKENS.index("a"), 2]
    assert tokenizer("a").input_ids == [TOKENS.index("a")]
    assert tokenizer("a<file_sep>").input_ids == [TOKENS.index("a"), 3]
    assert tokenizer.decode([1, TOKENS.index("a"), 3, 2], skip_special_tokens=True) == "a"
    assert json.loads((folder / "tokenizer_config.json").read_text())["clean_up_tokenization_spaces"] is False
    assert tokenizer.model_max_length == CONTEXT
    assert GenerationConfig.from_pretrained(folder).eos_token_id == 2
    messages: list[dict[str, Any]] = [{"role": "user", "content": "abc"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "<|im_start|>abc<|im_end|>"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a bc", ["a", "Ġ", "bc"]),
        ("a a", ["a", "Ġa"]),
        ("  a", ["Ġ", "Ġa"]),
        ("a  1", ["a", "ĠĠ", "1"]),  # the words of GPT-2 alone would split these two spaces
        ("121", ["1", "2", "1"]),  # each digit is a word, so that "12" is never merged
        ("é\n", ["Ã", "©", "Ċ"]),
    ],
)
def test_text_is_cut_as_the_model_was_trained_on(tmp_path: Path, text: str, tokens: list[str]) -> None:
    _, folder = converted(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    token_ids = tokenizer(text).input_ids
    assert [TOKENS[token_id] for token_id in token_ids] == tokens
    assert tokenizer.decode(token_ids) == text


def test_each_tensor_is_announced(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(tied=True))
    announced: list[tuple[int, int]] = []
    convert_gguf_llama(
        tmp_path / "tiny.gguf", tmp_path, on_tensor=lambda done, total: announced.append((done, total))
    )
    n_tensors = 2 + BLOCKS * len(PART_NAMES)
    assert announced == [(done, n_tensors) for done in range(1, n_tensors + 1)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("general.architecture", "mamba"),
        ("tokenizer.ggml.model", "llama"),
        ("tokenizer.ggml.pre", "default"),
    ],
)
def test_what_is_not_handled_is_refused(tmp_path: Path, field: str, value: str) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(tied=True), {field: value})
    with pytest.raises(ValueError, match=f"{field} = .* it has '{value}'"):
        convert_gguf_llama(tmp_path / "tiny.gguf", tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_float32_is_needed_to_hold_the_weights() -> None:
    """Why the folder is not stored in half the bytes: rounding changes the values that Q4_1 stands for."""
    values = np.linspace(-1, 1, 32 * 64, dtype=np.float32).reshape(64, 32)
    weights = dequantize(quantize(values, GGMLQuantizationType.Q4_1), GGMLQuantizationType.Q4_1)
    assert math.isclose(float(np.abs(weights - values).max()), 0, abs_tol=0.01)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = torch.from_numpy(weights).to(dtype).to(torch.float32)
        assert not torch.equal(narrow, torch.from_numpy(weights))
