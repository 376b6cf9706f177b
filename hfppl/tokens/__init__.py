"""Tokens, sets of tokens, and the vocabulary they belong to."""

from .mask import TokenMask
from .token import HasVocabulary, Token, TokenSequence
from .vocabulary import Vocabulary, decode

__all__ = ["HasVocabulary", "Token", "TokenMask", "TokenSequence", "Vocabulary", "decode"]
