"""Contexts over real kinds of tokenizer: prompts of every form, and text that is its tokens' bytes."""

from typing import Any

import kit
import pytest

from hfppl import CachedCausalLM, LMContext, Token
from hfppl.errors import ArgumentError, VocabularyError
from hfppl.llms.mock import MockBackend
from hfppl.tokens.token_bytes import find_eos_token_ids, read_vocabulary

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def mock_lm(tokenizer: Any) -> CachedCausalLM:
    vocabulary = read_vocabulary(tokenizer)
    eos = find_eos_token_ids(tokenizer, None, vocabulary)
    return CachedCausalLM._make(MockBackend(vocabulary.size), tokenizer, vocabulary, eos, None, None)


@pytest.fixture(scope="module")
def pieces() -> CachedCausalLM:
    return mock_lm(kit.metaspace())


@pytest.fixture(scope="module")
def bytewise() -> CachedCausalLM:
    return mock_lm(kit.byte_level())


async def advance(context: LMContext, *pieces: bytes) -> None:
    for piece in pieces:
        (token_id,) = context.lm.masks.bytes({piece})
        await context.next_token().intervene(token_id)


async def test_the_first_space_after_a_prompt_is_kept(pieces: CachedCausalLM) -> None:
    context = LMContext(pieces, "Hello")
    await advance(context, b" world")
    assert str(context) == " world"
    assert str(context.s) == "Hello world"
    assert str(context.s)[context.prompt_string_length :] == " world"


async def test_the_first_space_of_a_text_is_the_tokenizers_own(pieces: CachedCausalLM) -> None:
    context = LMContext(pieces, "")  # the start token alone
    assert context.tokens == [pieces.tokenizer.bos_token_id]
    await advance(context, b" Hello", b" world")
    assert str(context) == "Hello world"
    assert str(context.s).endswith("Hello world")


async def test_half_characters(pieces: CachedCausalLM) -> None:
    context = LMContext(pieces, "Hello")
    shown = []
    for byte in "é😀".encode():
        await advance(context, bytes([byte]))
        shown.append(str(context))
    assert shown == ["\ufffd", "é", "é\ufffd", "é\ufffd", "é\ufffd", "é😀"]
    assert bytes(context) == "é😀".encode()


async def test_text_is_the_bytes_of_its_tokens_at_every_step(bytewise: CachedCausalLM) -> None:
    text = "x != y,\r\n\tnaïve 中文 \x00 👩‍👩‍👧"
    context = LMContext(bytewise, "a")
    data = b""
    for token_id in bytewise.tokenizer.encode(text, add_special_tokens=False):
        await context.next_token().intervene(token_id)
        data += bytewise.byte_vocab[token_id]
        assert bytes(context) == data
        assert str(context) == data.decode(errors="replace")
    assert str(context) == text


def test_prompts_of_every_form(bytewise: CachedCausalLM) -> None:
    ids = bytewise.tokenizer.encode("hi there")
    forms: list[Any] = [
        "hi there",
        ids,
        tuple(ids),
        [Token(bytewise, i) for i in ids],
        LMContext(bytewise, ids).s,
    ]
    assert [LMContext(bytewise, form).tokens for form in forms] == [ids] * len(forms)


@pytest.mark.parametrize("bad", [3, None, ["hi"], [3.5], b"hi", [10**6], [-1]])
def test_what_is_no_prompt(bytewise: CachedCausalLM, bad: Any) -> None:
    with pytest.raises((ArgumentError, VocabularyError)):
        LMContext(bytewise, bad)


def test_an_empty_prompt_without_a_start_token(bytewise: CachedCausalLM) -> None:
    assert bytewise.tokenizer.bos_token_id is None
    for empty in ("", []):
        with pytest.raises(ArgumentError, match="no start token"):
            LMContext(bytewise, empty)


def test_chat_messages(pieces: CachedCausalLM) -> None:
    tokenizer = kit.metaspace()
    tokenizer.chat_template = TEMPLATE
    lm = mock_lm(tokenizer)
    context = LMContext(lm, [{"role": "user", "content": "Hello world"}], show_prompt=True)
    assert context.tokens.count(tokenizer.bos_token_id) == 1
    assert context.tokens[0] == tokenizer.bos_token_id
    assert str(context).endswith("Hello world [assistant]")
    assert context.token_count == 0
    for bad in ([{"role": "user"}], [{"role": "user", "content": "x"}, "y"]):
        with pytest.raises(ArgumentError, match="chat message"):
            LMContext(lm, bad)


def test_chat_messages_without_a_template(bytewise: CachedCausalLM) -> None:
    with pytest.raises(ArgumentError, match="no chat template"):
        LMContext(bytewise, [{"role": "user", "content": "hi"}])


@pytest.mark.model
async def test_chat_with_the_default_model() -> None:
    lm = CachedCausalLM.from_pretrained(backend="mock")
    context = LMContext(lm, [{"role": "user", "content": "Say hi."}], show_prompt=True)
    assert str(context).endswith("<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n")
    assert lm.eos_token_ids == {lm.tokenizer.eos_token_id}
    lm.eos_token_ids = {0, 2}
    assert set(lm.masks.EOS) == {0, 2}
