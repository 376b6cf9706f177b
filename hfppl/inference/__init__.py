"""Inference: drivers, and what they return."""

from .enumeration import ExactParticles, enumerate_exact
from .importance import importance_sampling
from .population import Particles
from .resampling import RESAMPLING_METHODS
from .smc_record import RunInfo, SMCRecord, SMCStep
from .smc_standard import smc_standard
from .smc_steer import smc_steer

__all__ = [
    "RESAMPLING_METHODS",
    "ExactParticles",
    "Particles",
    "RunInfo",
    "SMCRecord",
    "SMCStep",
    "enumerate_exact",
    "importance_sampling",
    "smc_standard",
    "smc_steer",
]
