"""Language models."""

from ..tokens import Masks, Token, TokenMask, TokenSequence
from .cached_causal_lm import CachedCausalLM
from .row_source import LMStats

__all__ = ["CachedCausalLM", "LMStats", "Masks", "Token", "TokenMask", "TokenSequence"]
