"""What the incremental engine computes, keeps, copies and forgets: counted, not timed."""

import random

import pytest
import torch
from tiny_models import VOCABULARY, largest_error, tiny_model

from hfppl.llms.hf import HFBackend
from hfppl.llms.kv_plan import SEGMENT_LENGTH, Planner, Run, cut_into_passes
from hfppl.llms.kv_promote import FAMILY_LENGTH, TRUNK_LENGTH, promote_trunks
from hfppl.llms.kv_stretch import KVShape, Segment, Tail
from hfppl.llms.kv_tree import STALE_AFTER, KVTree
from hfppl.llms.prefix import Prefix
from hfppl.llms.tree_attention import Block, Settings, attend, attend_blocks, attend_by_scores

TOLERANCE = 1e-4


class Engine:
    """A backend whose every answer is compared with plain calls, and whose work can be read off."""

    def __init__(self, **options: object) -> None:
        self.model = tiny_model("llama")
        self.backend = HFBackend(self.model, **options)
        self.tree: KVTree = self.backend._evaluator.tree

    def evaluate(self, prefixes: list[Prefix], *, check: bool = True) -> tuple[int, int]:
        """Forward passes and tokens that it took."""
        before = self.backend.counters()
        rows = self.backend.evaluate(prefixes)
        if check:
            assert largest_error(self.model, prefixes, rows) < TOLERANCE
        after = self.backend.counters()
        return (
            after["forward_passes"] - before["forward_passes"],
            after["tokens_evaluated"] - before["tokens_evaluated"],
        )

    def tails(self) -> list[tuple[int, int]]:
        """Start and length of each tail."""
        return sorted((tail.start, len(tail.nodes)) for tail in self.tree.tails)

    def segments(self) -> list[tuple[int, int]]:
        """Start and length of each segment."""
        return sorted((segment.start, len(segment.nodes)) for segment in self.tree.segments)


def prompt_of(length: int, seed: int = 0) -> Prefix:
    rng = random.Random(seed)
    return Prefix.root().descend(rng.randrange(VOCABULARY) for _ in range(length))


# How much is computed


def test_children_cost_one_pass_and_one_token_each() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    assert engine.evaluate([prompt]) == (1, 20)
    particles = [prompt.child(token) for token in range(7)]
    assert engine.evaluate(particles) == (1, 7)
    particles = [particle.child(3) for particle in particles]
    assert engine.evaluate(particles) == (1, 7)
    assert engine.segments() == [(0, 20)]
    assert engine.tails() == [(20, 2)] * 7


def test_a_second_run_from_the_same_prompt_pays_no_prefill() -> None:
    engine = Engine()
    root = Prefix.root()
    ids = prompt_of(40).token_ids()
    assert engine.evaluate([root.descend(ids)]) == (1, 40)
    children = [root.descend(ids).child(token) for token in range(3)]
    assert engine.evaluate(children) == (1, 3)
    del children
    assert engine.evaluate([root.descend(ids).child(token) for token in (2, 9)]) == (1, 2)


def test_the_first_step_of_many_prefixes_computes_their_beginning_once() -> None:
    engine = Engine()
    prompt = prompt_of(50)
    assert engine.evaluate([prompt.child(token) for token in range(6)]) == (1, 56)


def test_particles_of_different_lengths_share_one_pass() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    engine.evaluate([prompt])
    batch = [prompt.child(1), prompt.descend([2, 3, 4]), prompt.descend([5, 6]), prompt.descend(range(9))]
    assert engine.evaluate(batch) == (1, 1 + 3 + 2 + 9)
    assert engine.evaluate([prefix.child(0) for prefix in batch]) == (1, 4)


def test_asking_again_recomputes_one_token() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    leaf = prompt.descend([1, 2, 3])
    engine.evaluate([leaf])
    assert engine.evaluate([leaf]) == (1, 1)
    assert engine.evaluate([prompt]) == (1, 1)
    assert engine.evaluate([prompt.child(1)]) == (1, 1)


def test_a_long_prompt_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfppl.llms.hf_tree.SEGMENT_PIECE", 16)
    monkeypatch.setattr("hfppl.llms.hf_tree.TOKENS_PER_PASS", 20)
    engine = Engine()
    prompt = prompt_of(70)
    assert engine.evaluate([prompt.child(token) for token in range(3)]) == (5, 73)


def test_runs_are_cut_in_order_and_within_the_room() -> None:
    stretch = Tail(None, 0, 0)
    nodes = prompt_of(23).path()
    runs = [Run(stretch, 5, nodes), Run(stretch, 0, nodes[:4]), Run(stretch, 0, nodes[:9])]
    passes = cut_into_passes(runs, 10, 15)
    assert [[(run.first, len(run.nodes)) for run in each] for each in passes] == [
        [(5, 10)],
        [(15, 10), (25, 3)],
        [(0, 4), (0, 9)],
    ]


# Forks


def test_a_fork_copies_its_tail_only() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    leaf = prompt.descend([1, 2, 3])
    engine.evaluate([prompt])
    engine.evaluate([leaf])
    held = engine.tree.n_bytes
    copied = []
    original = KVTree.copy_tail

    def counted(self: KVTree, source: Tail, length: int, target: Tail) -> None:
        copied.append(length)
        original(self, source, length, target)

    engine.tree.copy_tail = counted.__get__(engine.tree)
    assert engine.evaluate([leaf.child(token) for token in range(4)]) == (1, 4)
    assert copied == [3, 3, 3], "the first continues in place"
    assert engine.tree.n_bytes == held, "four slots were there from the start"
    assert engine.segments() == [(0, 20)]


def test_a_sequence_can_be_continued_from_its_middle() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    leaf = prompt.descend([1, 2, 3, 4, 5])
    engine.evaluate([leaf])
    middle = leaf.path()[22]
    assert engine.evaluate([middle.child(9), leaf.child(9)]) == (1, 2)


def test_a_dead_end_is_written_over() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    engine.evaluate([prompt])
    stem = prompt.child(1)
    for token in range(5):
        assert engine.evaluate([stem.child(token)])[0] == 1
    assert engine.tails() == [(20, 2)], "each child took the place of the last, which nobody holds"


# Forgetting


def test_slots_of_the_dead_are_used_again() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    for round_ in range(6):
        engine.evaluate([prompt.descend([round_, token]) for token in range(4)])
    assert engine.tree.tail_keys.shape[1] <= 10


def test_idle_tails_give_way_after_a_while() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    idle = [prompt.child(token) for token in range(4)]
    engine.evaluate(idle)
    alive = []
    for step in range(3 * STALE_AFTER):
        alive.append(prompt.descend([9, step % VOCABULARY, step // 61]))
        engine.evaluate(alive[-1:], check=False)
    assert engine.tree.tail_keys.shape[1] < 2 * STALE_AFTER
    assert not any(tail.holds(prefix) for tail in engine.tree.tails for prefix in idle)
    assert engine.evaluate(idle) == (1, 4)


@pytest.mark.parametrize("limit", [0, 3_000, 30_000, 10**9])
def test_results_do_not_depend_on_the_limit(limit: int) -> None:
    engine = Engine(kv_cache_bytes=limit)
    rng = random.Random(limit)
    prompt = prompt_of(40)
    particles = [prompt]
    for _ in range(12):
        particles = [rng.choice(particles).child(rng.randrange(VOCABULARY)) for _ in range(6)]
        particles = list(dict.fromkeys(particles))
        engine.evaluate(particles)
        assert engine.tree.n_bytes <= limit


def test_the_least_recently_used_goes_first() -> None:
    engine = Engine()
    prompts = [prompt_of(40, seed) for seed in range(3)]
    for prompt in prompts:
        engine.evaluate([prompt])
    engine.evaluate([prompts[0].child(1)])
    engine.tree.limit = 100 * engine.tree.shape.bytes_per_token  # two of the three prompts
    engine.evaluate([prompts[0].child(2)])
    assert engine.evaluate([prompts[0].child(3)])[1] == 1
    assert engine.evaluate([prompts[2].child(3)])[1] == 1
    assert engine.evaluate([prompts[1].child(3)])[1] == 41, "the one not used for longest was forgotten"


def test_kept_sequences_stay_until_all_is_cleared() -> None:
    engine = Engine(kv_cache_bytes=0)
    root = Prefix.root()
    ids = prompt_of(30).token_ids()
    engine.backend.keep(root.descend(ids))
    assert engine.backend.counters()["tokens_evaluated"] == 30
    engine.backend.keep(root.descend(ids))
    assert engine.backend.counters()["tokens_evaluated"] == 30
    engine.evaluate([prompt_of(50, 1)])
    assert engine.evaluate([root.descend([*ids, 1]), root.descend([*ids, 2])]) == (1, 2)
    engine.backend.keep(root.descend([*ids, 1, 2, 3]))
    assert engine.evaluate([root.descend([*ids, 1, 2, 3, 4])]) == (1, 1)
    engine.backend.clear()
    assert engine.backend.counters()["kv_bytes"] == 0
    assert not engine.tree.segments
    assert not engine.tree.tails
    assert engine.evaluate([root.descend([*ids, 1])]) == (1, 31)


def test_keeping_what_lies_in_a_tail() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    leaf = prompt.descend([1, 2, 3])
    engine.evaluate([prompt])
    engine.evaluate([leaf])
    engine.backend.keep(leaf)
    engine.tree.limit = 0
    engine.evaluate([prompt_of(9, 5)])
    assert engine.tails() == []
    assert engine.evaluate([leaf.child(7)]) == (1, 1)


# Trunks


def test_what_tails_share_moves_to_a_segment() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    rng = random.Random(3)
    particles = [prompt.child(token) for token in range(6)]
    for step in range(90):
        engine.evaluate(particles, check=step % 10 == 0)
        if step % 5 == 4:  # a strong bottleneck: all descend from one
            particles = [particles[rng.randrange(6)]] * 6
        particles = [particle.child(token) for token, particle in enumerate(particles)]
    assert engine.segments()[0][1] > 20 + TRUNK_LENGTH, "the prompt's segment has grown"
    assert len(engine.tree.segments) == 1
    assert engine.tree.tail_keys.shape[3] <= 2 * TRUNK_LENGTH
    assert max(len(tail.nodes) for tail in engine.tree.tails) < 2 * TRUNK_LENGTH
    engine.evaluate([particle.child(5) for particle in particles])


def test_two_families_get_a_trunk_each() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    families = [prompt.descend([token] * 10) for token in (1, 2)]
    engine.evaluate(families)
    for step in range(FAMILY_LENGTH):
        families = [family.child(step % VOCABULARY) for family in families]
        engine.evaluate(families, check=step % 30 == 0)
    assert len(engine.tree.segments) == 1, "apart, they are not moved"
    forks = [family.child(token) for family in families for token in range(3)]
    engine.evaluate(forks)
    forks = [fork.descend([1, 2]) for fork in forks]
    engine.evaluate(forks)
    with torch.inference_mode():
        engine.tree.batch += 1
        promote_trunks(engine.tree)
    assert len(engine.tree.segments) == 2, "the prompt's, continued by one family, and the other's"
    assert {(start, length) for start, length in engine.tails()} == {(FAMILY_LENGTH + 30, 3)}
    assert engine.evaluate([fork.child(0) for fork in forks]) == (1, 6)


def test_a_tail_far_longer_than_others_leaves_the_slots() -> None:
    engine = Engine()
    prompt = prompt_of(9)
    engine.evaluate([prompt])
    short = [prompt.child(token) for token in range(4)]
    engine.evaluate(short)
    long = prompt.child(9)
    for step in range(4 * TRUNK_LENGTH + 9):
        engine.evaluate([long], check=step % 20 == 0)
        long = long.child(step % VOCABULARY)
    assert engine.segments()[-1][1] > 4 * TRUNK_LENGTH
    assert max(length for _, length in engine.tails()) < TRUNK_LENGTH
    assert engine.tree.tail_keys.shape[3] <= TRUNK_LENGTH
    assert engine.evaluate([long]) == (1, 1)
    engine.evaluate([each.child(1) for each in short])


def test_a_trunk_nobody_can_reach_is_forgotten() -> None:
    engine = Engine()
    prompt = prompt_of(20)
    engine.evaluate([prompt])
    particle = prompt
    for step in range(60):
        particle = particle.child(step % VOCABULARY)
        engine.evaluate([particle], check=step % 10 == 0)
    assert engine.segments()[0][1] > 20
    del particle
    for tail in list(engine.tree.tails):
        tail.forget_dead()
    promote_trunks(engine.tree)
    assert engine.segments() == [(0, 20)]
    assert engine.evaluate([prompt.child(token) for token in range(3)]) == (1, 3)


# The parts


def test_planning_is_undone() -> None:
    shape = KVShape(1, 1, 2, 2, torch.float32, torch.device("cpu"))
    tree = KVTree(shape, 10**9)
    prompt = prompt_of(SEGMENT_LENGTH + 5)
    tree.batch += 1
    Planner(tree).add([prompt])
    before = (len(tree.segments), len(tree.tails))
    tree.batch += 1
    planner = Planner(tree)
    planner.add([prompt.child(1), prompt.child(2), prompt_of(9, 1)])
    assert (len(tree.segments), len(tree.tails)) == (2, 2)
    planner.undo()
    assert (len(tree.segments), len(tree.tails)) == before
    assert tree.find(prompt.child(1))[1] == len(prompt)


def test_a_segment_grows_without_losing_what_it_holds() -> None:
    shape = KVShape(2, 3, 4, 5, torch.float32, torch.device("cpu"))
    segment = Segment(None, 0, 6, shape)
    tree = KVTree(shape, 0)
    path = prompt_of(6).path()
    tree.record(segment, path)
    segment.keys.normal_()
    segment.values.normal_()
    keys, values = segment.keys, segment.values
    segment.reserve(7, shape)
    assert segment.capacity >= 7
    assert segment.keys.shape[3] == 4
    assert segment.values.shape[3] == 5
    assert torch.equal(segment.keys[:, :, :6], keys)
    assert torch.equal(segment.values[:, :, :6], values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_the_kernel_agrees_with_its_plain_twin(dtype: torch.dtype, masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (
        torch.randn((3, 2, size, 16), generator=generator).to(dtype) for size in (5, 40, 40)
    )
    mask = torch.zeros((3, 1, 5, 40), dtype=dtype)
    mask[1, :, :, 7:] = -torch.inf
    settings = Settings(scale=0.25)
    found = attend(query, keys, values, mask if masked else None, settings)
    expected = attend_by_scores(query, keys, values, mask if masked else None, settings)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5 if dtype == torch.float32 else 3e-2)


def test_scores_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn((1, 2, size, 8), generator=generator) for size in (9, 20, 20))
    settings = Settings(scale=0.25, softcap=1.5)
    expected = attend(query, keys, values, None, settings)
    monkeypatch.setattr("hfppl.llms.tree_attention.SCORE_BYTES", 4 * 2 * 20 * 2)
    for a, b in zip(attend(query, keys, values, None, settings), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("window", [None, 3, 6, 11])
@pytest.mark.parametrize("softcap", [None, 1.0])
def test_joined_blocks_equal_one_softmax(window: int | None, softcap: float | None) -> None:
    """8 shared keys and 5 own ones, in two blocks and in one."""
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn((2, 1, 1, 2, 13, 8), generator=generator)
    query = torch.randn((5, 4, 8), generator=generator)
    settings = Settings(scale=0.5, window=window, softcap=softcap)
    offsets = torch.arange(5)[None]
    own = Block(keys[..., 8:, :], values[..., 8:, :], 5, offsets, True, 0, 4)
    shared = Block(keys[..., :8, :], values[..., :8, :], 5, offsets + 8, False, 8, 12)
    whole = Block(keys, values, 5, offsets + 8, True, 8, 12)
    found = attend_blocks([own], [shared], 0, query, 2, settings)
    expected = attend_blocks([whole], [], 0, query, 2, settings)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
