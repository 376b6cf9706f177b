"""Submodels for pieces of text larger than a token."""

from typing import Any

from .distributions import LMContext
from .errors import ArgumentError
from .modeling import submodel

__all__ = ["sample_word", "sample_word_2"]

# After one of these, a word begins without a space.
_NO_SPACE_AFTER = ("-", "'", '"', "’", "“", "(")


@submodel
async def sample_word(
    self: Any, context: LMContext, max_tokens: int = 5, allow_punctuation: bool = True
) -> tuple[str, str]:
    """Sample a word, and perhaps a punctuation mark after it.

    Args:
        context: the generation to continue.
        max_tokens: the word consists of at most so many tokens.
        allow_punctuation: whether a mark may follow.

    Returns:
        The word, with the space before it if there is one, and the mark, or "".
    """
    if max_tokens < 1:
        raise ArgumentError(f"a word has at least one token: max_tokens={max_tokens} allows none")
    masks = context.lm.masks
    await self.observe(context.mask_dist(_beginning(context)), True)
    word = ""
    for n_tokens in range(1, max_tokens + 1):
        word += str(await self.sample(context.next_token()))
        going_on = context.mask_dist(masks.CONTINUES_CURRENT_WORD)
        if n_tokens == max_tokens:
            await self.observe(going_on, False)
        elif not await self.sample(going_on):
            break
    mark = ""
    if allow_punctuation and await self.sample(context.mask_dist(masks.PUNCTUATION)):
        mark = str(await self.sample(context.next_token()))
    return word, mark


@submodel
async def sample_word_2(
    self: Any,
    context: LMContext,
    max_chars: int | None = None,
    allow_mid_punctuation: bool = True,
    allow_end_punctuation: bool = True,
) -> tuple[str, str, str]:
    """Sample a word of limited length, and perhaps a punctuation mark after it.

    Args:
        context: the generation to continue.
        max_chars: the word has at most so many characters, the space before it not counted.
        allow_mid_punctuation: whether a mark that goes on with the sentence may follow.
        allow_end_punctuation: whether a mark that ends the sentence may follow.

    Returns:
        The word, with the space before it if there is one; the first kind of mark, or ""; the second, or "".
    """
    if max_chars is not None and max_chars < 1:
        raise ArgumentError(f"a word has at least one character: max_chars={max_chars} allows none")
    masks = context.lm.masks
    await self.observe(context.mask_dist(_beginning(context)), True)
    word = ""
    while True:
        if max_chars is not None:
            # The first token may carry the space; STARTS_NEW_WORD tokens always do.
            room = max_chars - len(word.strip())
            fits = masks.token_length_mask(max=room)
            if not word:
                fits = fits | (masks.token_length_mask(max=room + 1) & masks.STARTS_NEW_WORD)
            await self.observe(context.mask_dist(fits), True)
        word += str(await self.sample(context.next_token()))
        going_on = context.mask_dist(masks.CONTINUES_CURRENT_WORD)
        if max_chars is not None and len(word.strip()) >= max_chars:
            await self.observe(going_on, False)
            break
        if not await self.sample(going_on):
            break

    allowed = context.lm.token_mask(())
    if allow_mid_punctuation:
        allowed = allowed | masks.MID_PUNCTUATION
    if allow_end_punctuation:
        allowed = allowed | masks.END_PUNCTUATION
    if not allowed or not await self.sample(context.mask_dist(allowed)):
        return word, "", ""
    token = await self.sample(context.next_token())
    if token in masks.MID_PUNCTUATION:
        return word, str(token), ""
    return word, "", str(token)


def _beginning(context: LMContext) -> Any:
    """The tokens a word may begin with here: with a space, unless what stands before has one already."""
    masks = context.lm.masks
    tokens = context.tokens
    if tokens and context.lm.vocabulary.special[tokens[-1]]:
        return masks.CONTINUES_CURRENT_WORD | masks.STARTS_NEW_WORD
    before = context.lm.str_vocab[tokens[-1]] if tokens else ""
    if not before or before[-1].isspace() or before.endswith(_NO_SPACE_AFTER):
        return masks.CONTINUES_CURRENT_WORD
    return masks.STARTS_NEW_WORD
