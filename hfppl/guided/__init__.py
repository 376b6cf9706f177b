"""Steering by a constraint: the ready-made model, the call that runs it, and the step both are made of."""

from .model import GuidedModel
from .next_token import next_allowed_token
from .steering import steer, steer_sync

__all__ = ["GuidedModel", "next_allowed_token", "steer", "steer_sync"]
