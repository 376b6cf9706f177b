"""Every text comes back from its tokens: tokenizers built on the spot, and real ones."""

import importlib.resources
from collections.abc import Callable
from typing import Any

import kit
import pytest
from hypothesis import HealthCheck, given, settings

from hfppl.tokens import Vocabulary, decode
from hfppl.tokens.token_bytes import find_eos_token_ids, read_vocabulary


@pytest.fixture(
    scope="module",
    params=["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "tekken_240911.json"],
)
def mistral(request: pytest.FixtureRequest) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    path = importlib.resources.files("mistral_common") / "data" / request.param
    tokenizer = MistralTokenizer.from_file(str(path))
    inner = tokenizer.instruct_tokenizer.tokenizer
    return read_vocabulary(tokenizer), lambda text: inner.encode(text, bos=False, eos=False)


def test_mistral_vocabularies(mistral):
    vocabulary, encode = mistral
    assert vocabulary.size in (32_000, 32_768, 131_072)
    assert vocabulary.byte_vocab[:3] == [b"<unk>", b"<s>", b"</s>"]
    assert vocabulary.special[:3].all()
    assert vocabulary.all_exist
    assert {bytes([i]) for i in range(256)} <= set(vocabulary.byte_vocab)
    assert b" world" in vocabulary.byte_vocab
    # A special token's text, typed, is ordinary tokens.
    assert not vocabulary.special[encode("[INST]</s>")].any()


@pytest.mark.parametrize("legacy", [True, False])
def test_a_slow_sentencepiece_tokenizer(legacy: bool):
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    path = importlib.resources.files("mistral_common") / "data" / "tokenizer.model.v1"
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = SentencePieceBackend(vocab_file=str(path), legacy=legacy, **names)
    tokenizer.add_tokens(["foo▁bar"])
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.size == 32_001
    assert vocabulary.byte_vocab[-1] == "foo▁bar".encode()
    assert list(vocabulary.special.nonzero()[0]) == [0, 1, 2]
    # Without the legacy behaviour no space is written before a text, so none may be stripped.
    assert vocabulary.strips_first_space == legacy
    for text in ("Hello world", " x", "é→😀\r\n"):
        assert vocabulary.join(tokenizer.encode(text, add_special_tokens=False)) == text.encode()
    assert find_eos_token_ids(tokenizer) == {2}


@pytest.fixture(scope="module")
def default_model() -> tuple[Vocabulary, Any]:
    from transformers import AutoTokenizer

    from hfppl.llms.default_model import default_model_path

    tokenizer = AutoTokenizer.from_pretrained(default_model_path())
    return read_vocabulary(tokenizer), tokenizer


@pytest.mark.model
def test_the_default_model(default_model):
    vocabulary, tokenizer = default_model
    assert vocabulary.size == 49_152
    assert vocabulary.all_exist
    assert [vocabulary.str_vocab[i] for i in tokenizer.encode(" world")] == [" world"]
    assert not vocabulary.strips_first_space
    assert vocabulary.byte_vocab[2] == b"<|im_end|>"
    assert vocabulary.special[:17].all()
    assert not vocabulary.special[17:].any()
    assert find_eos_token_ids(tokenizer) == {2}


# --- every text


def check_round_trip(vocabulary: Vocabulary, token_ids: list[int], expected: str) -> None:
    """The bytes joined are the text, and so is every beginning of them."""
    data = vocabulary.join(token_ids)
    assert data == expected.encode()
    for i in range(len(token_ids)):
        assert data.startswith(vocabulary.join(token_ids[:i]))
    assert decode(data) == expected


def _spaces(text: str) -> str:
    """What a metaspace tokenizer declares: it cannot tell its own sign from a space."""
    return text.replace("▁", " ")


def _without_first_space(text: str) -> str:
    """A pre-tokenizer writes its sign only where none stands, so it takes a first space for its own."""
    return _spaces(text).removeprefix(" ")


def _known_characters(text: str) -> str:
    return "".join(c for c in text if c in kit.CHARACTERS)


def _no_byte_pieces(text: str) -> str:
    """The library's Unigram takes `<0x0A>` in a text for the byte, so such texts are not asked of it."""
    return text.replace("<0x", "<x")


# For each tokenizer, which texts it is asked for and what becomes of them.
_PLAIN = {
    "byte_level": (kit.byte_level, str, str),
    "metaspace": (kit.metaspace, str, _spaces),
    "unigram": (kit.unigram, _no_byte_pieces, _without_first_space),
    "characters": (kit.characters, _known_characters, str),
}


@pytest.fixture(scope="module", params=_PLAIN)
def plain(request: pytest.FixtureRequest) -> Callable[[str], None]:
    make, allowed, normalised = _PLAIN[request.param]
    tokenizer = make()
    vocabulary = read_vocabulary(tokenizer)

    def check(text: str) -> None:
        text = allowed(text)
        check_round_trip(vocabulary, tokenizer.encode(text, add_special_tokens=False), normalised(text))

    return check


def _examples(count: int) -> Any:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class TestEveryTextComesBack:
    @_examples(40)
    @given(text=kit.texts())
    def test_plain(self, plain, text: str):
        plain(text)

    @pytest.mark.long
    @_examples(2500)
    @given(text=kit.texts())
    def test_plain_long(self, plain, text: str):
        plain(text)

    @_examples(30)
    @given(text=kit.texts())
    def test_mistral(self, mistral, text: str):
        vocabulary, encode = mistral
        check_round_trip(vocabulary, encode(text), _spaces(text) if vocabulary.strips_first_space else text)

    @pytest.mark.long
    @_examples(2500)
    @given(text=kit.texts())
    def test_mistral_long(self, mistral, text: str):
        vocabulary, encode = mistral
        check_round_trip(vocabulary, encode(text), _spaces(text) if vocabulary.strips_first_space else text)

    @pytest.mark.model
    @_examples(50)
    @given(text=kit.texts())
    def test_default_model(self, default_model, text: str):
        vocabulary, tokenizer = default_model
        # This vocabulary was trained without the symbols of some rare bytes, and drops them from a text.
        known = {entry for entry in vocabulary.byte_vocab if len(entry) == 1}
        text = "".join(c for c in text if all(bytes([byte]) in known for byte in c.encode()))
        check_round_trip(vocabulary, tokenizer.encode(text, add_special_tokens=False), text)


@pytest.mark.parametrize("make", [kit.byte_level, kit.metaspace, kit.unigram])
def test_a_lone_surrogate_is_refused(make: Any):
    with pytest.raises((UnicodeEncodeError, TypeError)):
        make().encode("\ud800")


def test_the_bytes_agree_with_the_tokenizer_s_own_decoder():
    for make in (kit.byte_level, kit.metaspace, kit.unigram):
        tokenizer = make()
        vocabulary = read_vocabulary(tokenizer)
        ids = tokenizer.encode("Hello world, the oo é→ 😀\r\n", add_special_tokens=False)
        assert decode(vocabulary.join(ids)) == tokenizer.decode(ids)
