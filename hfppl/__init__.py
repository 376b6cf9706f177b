"""Steer language models with sequential Monte Carlo.

Write the rule as a `Model` class whose `async step()` samples, observes and conditions; run it with
`smc_standard`; get weighted samples of the language model's own distribution, given the rule.
"""

from .chunks import sample_word, sample_word_2
from .distributions import (
    Bernoulli,
    Distribution,
    Geometric,
    LMContext,
    LMNextToken,
    LMTokenMask,
    LogCategorical,
    StatefulLM,
    TokenCategorical,
    Transformer,
)
from .errors import HfpplError
from .guided import GuidedModel, steer, steer_sync
from .inference import (
    Particles,
    SMCRecord,
    enumerate_exact,
    importance_sampling,
    smc_standard,
    smc_steer,
)
from .llms import CachedCausalLM, Masks, Token, TokenMask, TokenSequence
from .modeling import Model, SubModel, submodel
from .numerics import log_softmax, logsumexp, softmax
from .random import rng

__version__ = "0.3.0"

__all__ = [
    "Bernoulli",
    "CachedCausalLM",
    "Distribution",
    "Geometric",
    "GuidedModel",
    "HfpplError",
    "LMContext",
    "LMNextToken",
    "LMTokenMask",
    "LogCategorical",
    "Masks",
    "Model",
    "Particles",
    "SMCRecord",
    "StatefulLM",
    "SubModel",
    "Token",
    "TokenCategorical",
    "TokenMask",
    "TokenSequence",
    "Transformer",
    "enumerate_exact",
    "importance_sampling",
    "log_softmax",
    "logsumexp",
    "rng",
    "sample_word",
    "sample_word_2",
    "smc_standard",
    "smc_steer",
    "softmax",
    "steer",
    "steer_sync",
    "submodel",
]
