"""Which tokens end a text."""

from types import SimpleNamespace
from typing import Any

import kit
import pytest

from hfppl.tokens.token_bytes import find_eos_token_ids, read_vocabulary

_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _chat(template: str | None, special: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")) -> Any:
    tokenizer = kit.byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    tokenizer.chat_template = template
    return tokenizer


def test_the_end_of_a_turn_is_found_in_the_chat_template():
    tokenizer = _chat(_CHATML)
    assert find_eos_token_ids(tokenizer) == {tokenizer.convert_tokens_to_ids("<|im_end|>")}


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
        # Opens the next turn unasked, without an end of its own.
        "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}<|im_start|>",
        # Something comes between the reply and the token.
        "{% for m in messages %}<|im_start|>{{ m.content }} END <|im_end|>{% endfor %}",
        # The content is written twice, so that there is no telling which is the turn.
        "{% for m in messages %}{{ m.content }}{{ m.content }}<|im_end|>{% endfor %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_a_turn_end_that_is_in_doubt_is_left_out(template: str | None):
    assert find_eos_token_ids(_chat(template)) == frozenset()


def test_an_ordinary_token_or_the_start_token_ends_no_turn():
    template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    ordinary = kit.byte_level(extra=["<|im_end|>"])
    ordinary.chat_template = template
    assert find_eos_token_ids(ordinary) == frozenset()
    start = _chat(template)
    start.bos_token = "<|im_end|>"
    assert find_eos_token_ids(start) == frozenset()


def test_ends_are_the_union_of_tokenizer_generation_config_and_template():
    tokenizer = _chat(_CHATML)
    tokenizer.eos_token = "a"
    turn_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = SimpleNamespace(eos_token_id=[5, 7])
    assert find_eos_token_ids(tokenizer, config) == {tokenizer.convert_tokens_to_ids("a"), 5, 7, turn_end}


@pytest.mark.parametrize(
    ("ids", "expected"), [(None, set()), (5, {5}), ([5], {5}), ([5, 258, -1, 10**6], {5}), ([], set())]
)
def test_generation_config_alone(ids: Any, expected: set[int]):
    assert find_eos_token_ids(kit.byte_level(), SimpleNamespace(eos_token_id=ids)) == expected


def test_ids_without_a_logit_end_nothing():
    tokenizer = kit.byte_level()
    vocabulary = read_vocabulary(tokenizer, n_logits=6)
    assert find_eos_token_ids(tokenizer, SimpleNamespace(eos_token_id=[5, 6]), vocabulary) == {5}
