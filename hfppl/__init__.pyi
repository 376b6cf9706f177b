from . import chunks as chunks
from . import constraints as constraints
from . import distributions as distributions
from . import errors as errors
from . import guided as guided
from . import inference as inference
from . import llms as llms
from . import modeling as modeling
from . import plot as plot
from . import sampling as sampling
from . import tokens as tokens
from . import util as util
from . import viz as viz
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

__version__: str

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
