"""From what a user calls a prompt to token ids."""

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, ContextLengthError, VocabularyError
from ..tokens import Token, TokenSequence

if TYPE_CHECKING:
    from .cached_causal_lm import CachedCausalLM

Prompt = str | TokenSequence | Iterable[int | Token] | Iterable[Mapping[str, Any]]


def prompt_ids(lm: "CachedCausalLM", prompt: Any) -> list[int]:
    """Token ids of a prompt: a text, token ids or tokens, a sequence, or chat messages.

    A text is encoded as the tokenizer does it, start token included where it writes one. An empty
    prompt becomes the start token alone. Chat messages (`{"role": ..., "content": ...}`) go through the
    model's chat template, with the opening of the model's own turn added.

    Raises:
        ArgumentError: if there is nothing to begin with, or the messages cannot be written.
        VocabularyError: for ids that do not exist.
        ContextLengthError: if the prompt is longer than the model can read.
    """
    if isinstance(prompt, str):
        ids = [int(i) for i in lm.tokenizer.encode(prompt)]
    elif isinstance(prompt, Mapping):
        raise ArgumentError("chat messages come as a list: [{'role': ..., 'content': ...}]")
    elif isinstance(prompt, Iterable) and not isinstance(prompt, bytes):
        items = list(prompt)
        ids = _chat_ids(lm, items) if items and isinstance(items[0], Mapping) else token_ids(lm, items)
    else:
        raise ArgumentError(f"a prompt is a text, token ids or chat messages, not {type(prompt).__name__}")
    if not ids and not lm.backend.accepts_empty:
        start = getattr(lm.tokenizer, "bos_token_id", None)
        if start is None:
            raise ArgumentError(
                "the prompt is empty and this tokenizer has no start token, so there is nothing to "
                "condition on: give a prompt of at least one token"
            )
        ids = [start]
    check_length(lm.max_context, len(ids))
    return ids


def token_ids(lm: "CachedCausalLM", ids: Iterable[Any]) -> list[int]:
    """Checked ids of what should be ids or tokens.

    Raises:
        VocabularyError: for text, for ids that do not exist, for tokens of another vocabulary.
    """
    if isinstance(ids, str | bytes):
        raise VocabularyError(
            f"token ids belong here, not text ({ids!r}); `lm.tokenizer.encode(text)` makes ids of it"
        )
    vocabulary = lm.vocabulary
    if isinstance(ids, TokenSequence):
        vocabulary.check_same(ids.lm.vocabulary, "the sequence")
    result = []
    for item in ids:
        if isinstance(item, Token):
            vocabulary.check_same(item.lm.vocabulary, f"the token {item!r}")
        try:
            result.append(operator.index(item))
        except TypeError:
            raise VocabularyError(f"neither a token nor a token id: {item!r}") from None
    if result:
        vocabulary.check_id(min(result))
        vocabulary.check_id(max(result))
    return result


def check_length(limit: int | None, length: int) -> None:
    """Raise a ContextLengthError for more tokens than the model can read; None is no limit."""
    if limit is not None and length > limit:
        raise ContextLengthError(
            f"{length} tokens are more than the {limit} that this language model can read: "
            "shorten the prompt, or finish the particle earlier"
        )


def _chat_ids(lm: "CachedCausalLM", messages: list[Mapping[str, Any]]) -> list[int]:
    if not getattr(lm.tokenizer, "chat_template", None):
        raise ArgumentError(
            "this tokenizer has no chat template: write the conversation as text, "
            "or set tokenizer.chat_template"
        )
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise ArgumentError(f'a chat message is a dict with "role" and "content", not {message!r}')
    # The template writes every special token itself; encoding its text would add the start token twice.
    ids = lm.tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    return [int(i) for i in ids]
