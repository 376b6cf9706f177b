"""Steer language models with sequential Monte Carlo.

Write the rule as a `Model` class whose `async step()` samples, observes and conditions; run it with
`smc_standard`; get weighted samples of the language model's own distribution, given the rule.
"""

import pkgutil

import lazy_loader

# Names are imported when they are first used, from where __init__.pyi says, so that `hfppl --help` is quick.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted(set(_names) - {module.name for module in pkgutil.iter_modules(__path__)})
__version__ = "0.3.0"
