"""Every error of ours, as one tree.

HfpplError
├── ArgumentError        an argument that cannot be right (also a ValueError)
├── ConstraintError      a rule that cannot be built, or is too much for its engine (also a ValueError)
├── ContextLengthError   more tokens than the language model can read (also a ValueError)
├── CopyError            a particle holds something that cannot be copied (also a TypeError)
├── MissingLibraryError  an optional library that is not installed (also an ImportError)
├── ModelError           a model class that is not written as one (also a RuntimeError)
├── ModelUnavailableError  a language model that cannot be had (also an OSError)
├── NoMassError          a draw from a distribution in which nothing is possible (also a ValueError)
├── NumericalError       a NaN or +inf where a number must be (also an ArithmeticError)
├── QueriesResetError    a request dropped by `reset_async_queries()` (also a RuntimeError)
└── VocabularyError      a token, mask or id of another vocabulary (also a ValueError)
"""


class HfpplError(Exception):
    """Base of every error this package raises on its own account; each message says what to do."""


class ArgumentError(HfpplError, ValueError):
    """An argument that cannot be right."""


class ConstraintError(HfpplError, ValueError):
    """A constraint that cannot be built as it is written, or is too much for what works it out."""


class ContextLengthError(HfpplError, ValueError):
    """More tokens than the language model can read."""


class CopyError(HfpplError, TypeError):
    """A particle holds something that cannot be copied."""


class MissingLibraryError(HfpplError, ImportError):
    """A library that only part of the package needs, and that is not installed."""


class ModelError(HfpplError, RuntimeError):
    """A model class that is not written as one: a forgotten `await`, a `step` that is not async."""


class ModelUnavailableError(HfpplError, OSError):
    """A language model that cannot be had."""


class NoMassError(HfpplError, ValueError):
    """A draw from a distribution in which nothing is possible."""


class NumericalError(HfpplError, ArithmeticError):
    """A NaN or +inf where a log-probability, a log-weight or a logit must be."""


class QueriesResetError(HfpplError, RuntimeError):
    """A request that was waiting when `reset_async_queries()` was called."""


class VocabularyError(HfpplError, ValueError):
    """A token, a mask or a token id that does not belong to the language model's vocabulary."""
