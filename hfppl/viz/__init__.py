"""The picture of a run: its genealogy, weights and texts, on one HTML page."""

from .page import to_html
from .picture import Picture, show

__all__ = ["Picture", "show", "to_html"]
