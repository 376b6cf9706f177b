"""The bytes of every token of a tokenizer, and the tokens that end a text.

The bytes come from what the tokenizer declares: its decoder, its vocabulary's entries, its added tokens.
Nothing is decoded and encoded again, which loses spaces, half characters and control characters.
"""

import json
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import VocabularyError
from .pipeline import Pipeline, byte_level_reader, read_byte_piece, read_pipeline
from .vocabulary import Vocabulary


class _Contents(NamedTuple):
    token_bytes: list[bytes | None]
    special_ids: set[int]
    strips_first_space: bool


def read_vocabulary(tokenizer: Any, n_logits: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer; V is its highest id plus one.

    - Byte-level entries: the bytes that their characters stand for.
    - SentencePiece-style entries: UTF-8 with a space for `▁`; `<0x0A>` is one byte.
    - WordPiece entries: `##ing` is `ing`, every other entry has a space in front, but those that the
      decoder's clean-up attaches to the word before (`. , ! ?` and `n't 'm 's 've 're`). Such a tokenizer
      forgets the spaces of a text, so the bytes joined are a readable text, not always the one encoded.
    - Word-level entries without a decoder: a space in front, likewise.
    - Added tokens: their own text in UTF-8. One that is an ordinary entry of the model too and is not
      special (a run of `▁` that is declared twice, say) is read as that entry.
    - Special: the added tokens that say so, and the one that stands for what has no token.

    Args:
        tokenizer: of transformers, fast or slow (SentencePiece, byte-level); a `tokenizers.Tokenizer`; or
            a mistral-common tokenizer, bare or wrapped by transformers.
        n_logits: length of the model's rows of logits; ids from there on do not exist.

    Raises:
        VocabularyError: if the tokenizer does not say what its tokens contribute to a text.
    """
    contents = _read(tokenizer)
    if not contents.token_bytes:
        raise VocabularyError("the tokenizer has no tokens")
    return Vocabulary(
        contents.token_bytes,
        special_ids=contents.special_ids,
        strips_first_space=contents.strips_first_space,
        n_logits=n_logits,
    )


def find_eos_token_ids(
    tokenizer: Any, generation_config: Any = None, vocabulary: Vocabulary | None = None
) -> frozenset[int]:
    """The ids that end a text: an end of text, an end of turn. Empty if the tokenizer has none.

    The union of `tokenizer.eos_token_id`, `generation_config.eos_token_id` (an id or several), and the
    token by which the chat template ends the model's turn. The last is taken only if there is no doubt:
    the template writes it first after the text of the model's turn, white space aside; it is a special
    token; and it is neither the start token nor what opens a turn.

    Args:
        tokenizer: as for `read_vocabulary`.
        generation_config: of transformers, or None.
        vocabulary: the tokenizer's, if it has been read; ids that do not exist in it are left out.
    """
    if vocabulary is None:
        vocabulary = read_vocabulary(tokenizer)
    candidates: list[int] = []
    for owner in (tokenizer, generation_config):
        ids = getattr(owner, "eos_token_id", None)
        if ids is not None:
            candidates.extend(ids if isinstance(ids, Iterable) else [ids])
    turn_end = _turn_end(tokenizer)
    if turn_end is not None:
        candidates.append(turn_end)
    return frozenset(
        i for i in map(operator.index, candidates) if 0 <= i < vocabulary.size and vocabulary.exists[i]
    )


# --- the kinds of tokenizer


def _read(tokenizer: Any) -> _Contents:
    instruct = getattr(getattr(tokenizer, "tokenizer", tokenizer), "instruct_tokenizer", None)
    if instruct is not None:
        return _read_mistral_common(instruct.tokenizer)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "get_added_tokens_decoder") and hasattr(backend, "decoder"):
        return _read_backend(backend, getattr(tokenizer, "unk_token_id", None))
    processor = getattr(tokenizer, "sp_model", None)
    if processor is not None:
        return _read_sentencepiece(tokenizer, processor)
    byte_decoder = getattr(tokenizer, "byte_decoder", None)
    if isinstance(byte_decoder, Mapping) and sorted(byte_decoder.values()) == list(range(256)):
        return _read_byte_decoder(tokenizer, byte_decoder)
    raise VocabularyError(
        f"{type(tokenizer).__name__} does not say what its tokens are: it has neither a `backend_tokenizer`, "
        "nor a SentencePiece model, nor a byte-level table. Load the fast tokenizer of this model"
    )


def _read_backend(backend: Any, unk_token_id: int | None) -> _Contents:
    """A tokenizer of the `tokenizers` library."""
    added = backend.get_added_tokens_decoder()
    entries = backend.get_vocab(with_added_tokens=False)
    pieces: list[str | None] = [None] * (max((*entries.values(), *added), default=-1) + 1)
    for piece, token_id in entries.items():
        pieces[token_id] = piece
    special_ids = set() if unk_token_id is None else {unk_token_id}
    kind = type(backend.model).__name__
    if kind == "Unigram":
        # A list, where the others have a dict: an entry may come twice, and only the list shows both.
        model = json.loads(backend.model.__getstate__())
        listed = [piece for piece, _ in model["vocab"]]
        pieces[: len(listed)] = listed
        if model["unk_id"] is not None:
            special_ids.add(model["unk_id"])
    else:
        settings = ("byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
        model = {name: getattr(backend.model, name, None) for name in settings}
        unknown = getattr(backend.model, "unk_token", None)
        if unknown in entries:
            special_ids.add(entries[unknown])
    pipeline = read_pipeline(
        backend.decoder, backend.pre_tokenizer, backend.normalizer, model | {"type": kind}
    )
    return _contents(pieces, added, special_ids, pipeline)


def _read_sentencepiece(tokenizer: Any, processor: Any) -> _Contents:
    """A slow tokenizer of transformers that holds a SentencePiece model; its ids may not be the model's."""
    pieces: list[str | None] = list(tokenizer.convert_ids_to_tokens(list(range(tokenizer.vocab_size))))
    model_ids = range(processor.get_piece_size())
    marks = {
        processor.id_to_piece(i) for i in model_ids if processor.is_control(i) or processor.is_unknown(i)
    }
    special_ids = {i for i, piece in enumerate(pieces) if piece in marks}
    return _contents(pieces, tokenizer.added_tokens_decoder, special_ids, _sentencepiece_pipeline(processor))


def _read_byte_decoder(tokenizer: Any, byte_decoder: Mapping[str, int]) -> _Contents:
    """A byte-level tokenizer written in Python, which keeps its table in `byte_decoder`."""
    entries = tokenizer.get_vocab()
    pieces: list[str | None] = [None] * (max(entries.values(), default=-1) + 1)
    for piece, token_id in entries.items():
        pieces[token_id] = piece
    added = tokenizer.added_tokens_decoder
    for token_id in added:  # `get_vocab` holds them as if they were entries of the model
        if token_id < len(pieces):
            pieces[token_id] = None
    return _contents(pieces, added, set(), Pipeline(byte_level_reader(byte_decoder), False))


def _read_mistral_common(tokenizer: Any) -> _Contents:
    """A tokenizer of mistral-common: tekken, which knows its bytes, or SentencePiece."""
    ids = range(tokenizer.n_words)
    special_ids = {i for i in ids if tokenizer.is_special(i)}
    if hasattr(tokenizer, "id_to_byte_piece"):
        token_bytes: list[bytes | None] = [
            # The policy says what special tokens give, which are not asked.
            tokenizer.id_to_piece(i).encode() if i in special_ids else tokenizer.id_to_byte_piece(i, "raise")
            for i in ids
        ]
        return _Contents(token_bytes, special_ids, False)
    processor = getattr(tokenizer, "_model", None)
    if not hasattr(processor, "is_byte"):
        kind = type(tokenizer).__name__
        raise VocabularyError(f"the mistral-common tokenizer {kind} is neither tekken nor SentencePiece")
    pieces: list[str | None] = [tokenizer.id_to_piece(i) for i in ids]
    return _contents(pieces, {}, special_ids | {tokenizer.unk_id}, _sentencepiece_pipeline(processor))


def _sentencepiece_pipeline(processor: Any) -> Pipeline:
    """What a SentencePiece model does with its pieces."""

    def to_bytes(piece: str) -> bytes:
        byte = read_byte_piece(piece)
        if isinstance(byte, bytes) and processor.is_byte(processor.piece_to_id(piece)):
            return byte
        return piece.replace("▁", " ").encode()

    # The model has no getter for this; its decoder gives the answer for a piece that it need not know.
    return Pipeline(to_bytes, processor.decode_pieces(["▁x"]) == "x")


def _contents(
    pieces: list[str | None], added: Mapping[int, Any], special_ids: set[int], pipeline: Pipeline
) -> _Contents:
    """Entries of the model and added tokens, joined.

    Args:
        pieces: entries of the model by id, None for a hole.
        added: `AddedToken`s by id, which may lie beyond.
        special_ids: what is special besides the added tokens that say so.
        pipeline: reads the entries.
    """
    pieces = pieces + [None] * (max(added, default=-1) + 1 - len(pieces))
    special_ids = special_ids | {i for i, token in added.items() if token.special}
    own_text = {i: pieces[i] for i in special_ids if 0 <= i < len(pieces)}
    own_text |= {i: t.content for i, t in added.items() if t.special or pieces[i] != t.content}
    token_bytes = [None if piece is None else pipeline.to_bytes(piece) for piece in pieces]
    for token_id, text in own_text.items():
        token_bytes[token_id] = None if text is None else text.encode()
    return _Contents(token_bytes, special_ids, pipeline.strips_first_space)


# --- the end of a turn

_USER, _REPLY = "Xuserx", "Xreplyx"  # plain letters: no template trims or rewrites them


def _turn_end(tokenizer: Any) -> int | None:
    """The id by which the chat template ends the model's turn, or None if that is not plain."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if not getattr(tokenizer, "chat_template", None) or not isinstance(added, Mapping):
        return None
    messages = [{"role": "user", "content": _USER}, {"role": "assistant", "content": _REPLY}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # a template is a program of the model's author, and may refuse this conversation
        return None
    if not isinstance(text, str) or text.count(_USER) != 1 or text.count(_REPLY) != 1:
        return None
    between, after = text.split(_USER)[1].partition(_REPLY)[::2]
    special: dict[str, int] = {token.content: token_id for token_id, token in added.items() if token.special}
    end = max((content for content in special if after.lstrip().startswith(content)), key=len, default=None)
    # The last special token before the reply opens the model's turn. A template that opens another turn
    # unasked would show it here.
    opening = max(special, key=between.rfind, default=None)
    if end is None or (end == opening and end in between) or end == getattr(tokenizer, "bos_token", None):
        return None
    return special[end]
