"""The examples as modules, and what their particles have in common."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hfppl import Particles

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    """An example as a module. They belong to no package: a user runs them as scripts."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def live(particles: Particles) -> list[Any]:
    """The particles that count; there must be some, of more than one text."""
    alive = [particle for particle in particles if particle.weight > -np.inf]
    assert all(particle.finished for particle in alive)
    assert len({str(particle) for particle in alive}) > 1
    assert np.isfinite(particles.log_marginal_likelihood)
    return alive
