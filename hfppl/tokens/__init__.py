"""Tokens, sets of tokens, and the vocabulary they belong to."""

from .mask import TokenMask
from .masks import Masks
from .token import HasVocabulary, Token, TokenSequence
from .token_bytes import find_eos_token_ids, read_vocabulary
from .vocabulary import Vocabulary, decode

__all__ = [
    "HasVocabulary",
    "Masks",
    "Token",
    "TokenMask",
    "TokenSequence",
    "Vocabulary",
    "decode",
    "find_eos_token_ids",
    "read_vocabulary",
]
