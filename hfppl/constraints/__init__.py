"""Rules for texts: regular expressions, JSON schemas, grammars, lists, and checkers written in Python."""

from .choice import Choice, Lark
from .combined import And, Not, TokenLimit
from .constraint import Constraint, State
from .json_schema import JsonSchema
from .predicate import Predicate
from .regex import Regex

__all__ = [
    "And",
    "Choice",
    "Constraint",
    "JsonSchema",
    "Lark",
    "Not",
    "Predicate",
    "Regex",
    "State",
    "TokenLimit",
]
