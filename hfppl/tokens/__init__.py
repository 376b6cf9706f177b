"""Tokens, sets of tokens, and the vocabulary they belong to."""

from .mask import TokenMask
from .masks import Masks
from .token import HasVocabulary, Token, TokenSequence
from .vocabulary import Vocabulary, decode

__all__ = [
    "HasVocabulary",
    "Masks",
    "Token",
    "TokenMask",
    "TokenSequence",
    "Vocabulary",
    "decode",
]
