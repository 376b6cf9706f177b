"""Language models."""

from ..tokens import Token, TokenMask, TokenSequence
from ..tokens.masks import Masks
from .cached_causal_lm import CachedCausalLM, LMStats

__all__ = ["CachedCausalLM", "LMStats", "Masks", "Token", "TokenMask", "TokenSequence"]
