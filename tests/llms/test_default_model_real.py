"""The default model as it comes out of the cache: what users of transformers expect of a folder."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from hfppl.llms.default_model import default_model_path


@pytest.mark.model
def test_the_real_default_model() -> None:
    folder = default_model_path()
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert len(tokenizer) == model.config.vocab_size == 49152
    assert not hasattr(model.config, "quantization_config")

    end_of_turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end_of_turn == 2
    assert tokenizer.eos_token_id == end_of_turn
    assert model.config.eos_token_id == end_of_turn
    assert GenerationConfig.from_pretrained(folder).eos_token_id == end_of_turn
    assert model.generation_config.eos_token_id == end_of_turn

    text = "In 1969, two men  walked on the Moon — not 12.\n\n3 naïve cafés, 日本語 🙂 don't count."
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello!"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert prompt.endswith("<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n")

    opening = tokenizer("My favourite season is summer, because", return_tensors="pt")
    continued = model.generate(**opening, max_new_tokens=12, do_sample=False)[0, opening.input_ids.shape[1] :]
    assert tokenizer.decode(continued).startswith(" it's the time of the year when the sun shines")
