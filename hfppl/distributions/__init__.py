"""Distributions to sample from and to observe."""

from .bernoulli import Bernoulli
from .distribution import Distribution
from .geometric import Geometric
from .lmcontext import LMContext, LMNextToken, LMTokenMask
from .logcategorical import LogCategorical
from .tokencategorical import TokenCategorical
from .transformer import Transformer

StatefulLM = LMContext  # its historical name

__all__ = [
    "Bernoulli",
    "Distribution",
    "Geometric",
    "LMContext",
    "LMNextToken",
    "LMTokenMask",
    "LogCategorical",
    "StatefulLM",
    "TokenCategorical",
    "Transformer",
]
