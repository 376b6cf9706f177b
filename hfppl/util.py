"""Log-space arithmetic, under its historical import path."""

from .numerics import log_softmax, logsumexp, softmax

__all__ = ["log_softmax", "logsumexp", "softmax"]
