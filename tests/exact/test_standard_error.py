"""The standard error of log Z, and moves after resampling."""

import math

import numpy as np
import pytest

from hfppl import LMContext, Model, importance_sampling, rng, smc_standard
from hfppl.errors import ModelError
from hfppl.inference.genealogy import Genealogy

from .reference import LM, REFERENCES, Reference, V, prob, text
from .test_exactness import z_scores


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("name", "n_particles"),
    [
        ("temperature", 100),
        pytest.param("submodels", 400, marks=pytest.mark.long),
        pytest.param("twist", 400, marks=pytest.mark.long),
    ],
)
async def test_coverage(name: str, n_particles: int, threshold: float) -> None:
    """The interval of 1.96 standard errors around log Z covers it about 95 times in a hundred.

    That is theory for large populations. How large that is depends on the spread of the weights.
    """
    reference = REFERENCES[name]
    covered = []
    for seed in range(120):
        particles = await smc_standard(
            reference.make(), n_particles, threshold, resampling_method="multinomial", seed=seed
        )
        if particles.log_marginal_likelihood_se is not None:
            error = abs(particles.log_marginal_likelihood - math.log(reference.z))
            covered.append(error < 1.96 * particles.log_marginal_likelihood_se)
    assert len(covered) > 80
    assert 0.88 < np.mean(covered) < 0.99


async def test_without_resampling_it_is_the_sample_standard_error() -> None:
    particles = await importance_sampling(REFERENCES["submodels"].make(), 40, seed=1)
    weights = np.exp(particles.log_weights)
    expected = weights.std(ddof=1) / math.sqrt(40) / weights.mean()
    assert particles.log_marginal_likelihood_se == pytest.approx(expected)


async def test_there_is_none_where_there_is_no_theory() -> None:
    model = REFERENCES["submodels"].make()
    assert (await smc_standard(model, 20, 1.0, seed=1)).log_marginal_likelihood_se is None
    assert (await smc_standard(model, 1, 1.0, seed=1)).log_marginal_likelihood_se is None
    one_family = Genealogy(3, "multinomial")
    one_family.resample(np.array([1, 1, 1]))
    assert one_family.standard_error(np.zeros(3)) is None
    assert Genealogy(3, "multinomial").standard_error(np.full(3, -np.inf)) is None
    assert Genealogy(3, "multinomial").standard_error(np.zeros(3)) == 0


class TwoTokens(Model):
    """Two tokens, the first of which is redrawn by the move."""

    def __init__(self) -> None:
        super().__init__()
        self.context = LMContext(LM, "")

    async def step(self) -> None:
        token = await self.sample(self.context.next_token())
        if self.context.token_count == 1:
            self.score({0: 0.0, 1: -1.0, 2: -2.0, 3: -0.5, 4: -3.0}[token.token_id])
        else:
            self.finish()


REDRAWN = [0]


async def redraw(particle: TwoTokens) -> TwoTokens:
    """A Metropolis-Hastings step: propose a first token from the prior, accept by the ratio of scores."""
    if particle.context.token_count != 1:
        return particle
    other = TwoTokens()
    await other.step()
    if math.log(rng().random()) < other.weight - particle_score(particle):
        REDRAWN[0] += 1
        return other
    return particle


def particle_score(particle: TwoTokens) -> float:
    return {0: 0.0, 1: -1.0, 2: -2.0, 3: -0.5, 4: -3.0}[particle.context.tokens[0]]


async def test_a_move_leaves_the_target_as_it_is() -> None:
    exact = {
        text((i, j)): prob((i, j)) * math.exp([0.0, -1.0, -2.0, -0.5, -3.0][i])
        for i in range(V)
        for j in range(V)
    }
    # Different token sequences may read the same; none of these do, as the next line says.
    reference = Reference(TwoTokens, exact)
    assert len(exact) == V * V
    rows = np.zeros((200, 1 + len(exact)))
    for seed in range(200):
        particles = await smc_standard(TwoTokens(), 10, 1.0, seed=seed, move=redraw)
        rows[seed, 0] = math.exp(particles.log_marginal_likelihood)
        for particle, log_weight in zip(particles, particles.log_weights, strict=True):
            rows[seed, 1 + list(exact).index(str(particle))] += math.exp(log_weight) / 10
    assert max(map(abs, z_scores(rows, reference, 10).values())) < 5
    assert REDRAWN[0] > 100


async def test_a_move_that_returns_nothing_is_refused() -> None:
    async def forgetful(particle: Model) -> None:
        return None

    with pytest.raises(ModelError, match="move must return"):
        await smc_standard(TwoTokens(), 10, 1.0, seed=0, move=forgetful)


async def test_dataframe() -> None:
    pytest.importorskip("pandas")
    particles = await smc_standard(REFERENCES["condition"].make(), 10, seed=0)
    frame = particles.to_dataframe()
    assert list(frame.columns) == ["text", "log_weight", "probability", "finished"]
    assert frame["probability"].sum() == pytest.approx(1)
    assert list(frame["text"]) == [str(particle) for particle in particles]
