"""Inference: drivers, and what they return."""

from .population import Particles
from .resampling import RESAMPLING_METHODS
from .smc_record import SMCRecord, SMCStep
from .smc_standard import smc_standard
from .smc_steer import smc_steer

__all__ = ["RESAMPLING_METHODS", "Particles", "SMCRecord", "SMCStep", "smc_standard", "smc_steer"]
