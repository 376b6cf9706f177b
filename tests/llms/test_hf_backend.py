"""The transformers backend equals plain, uncached calls of the model, and leaves the model as it was."""

import random
import threading

import numpy as np
import pytest
import torch
import transformers
from tiny_models import INCREMENTAL, OWN_CACHE, VOCABULARY, WINDOW, largest_error, tiny_model, whole_logprobs

from hfppl.errors import ModelUnavailableError
from hfppl.llms import hf, hf_attention, hf_loading
from hfppl.llms.hf import HFBackend
from hfppl.llms.kv_plan import Run
from hfppl.llms.prefix import Prefix

TOLERANCE = 1e-4


def random_ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(count)]


def random_batches(rng: random.Random, n_batches: int):
    """Batches of prefixes as particles would ask for them, and as nobody would.

    Several prompts; continuations by 0 to 40 tokens; forks; sequences that all forget (so that their
    nodes die); beginnings of earlier sequences.
    """
    root = Prefix.root()
    prompts = [root.descend(random_ids(rng, length)) for length in (1, 2, 20, 45)]
    alive = list(prompts)
    for _ in range(n_batches):
        batch = []
        for _ in range(rng.randrange(1, 8)):
            node = rng.choice(alive)
            node = node.descend(random_ids(rng, rng.choice((0, 1, 1, 1, 1, 1, 2, 4, 40))))
            if rng.random() < 0.05:
                node = rng.choice(node.path())
            if len(node) <= 150:
                batch.append(node)
        batch = list(dict.fromkeys(batch))
        rng.shuffle(batch)
        if batch:
            yield batch
        alive += batch
        if len(alive) > 12:  # resampling: few survive, some several times
            alive = rng.choices(alive, k=6) + prompts[: rng.randrange(4)]


@pytest.mark.parametrize("name", INCREMENTAL + OWN_CACHE)
@pytest.mark.parametrize("kv_cache_bytes", [2**30, 40_000])
def test_rows_equal_plain_calls(name: str, kv_cache_bytes: int) -> None:
    model = tiny_model(name)
    backend = HFBackend(model, kv_cache_bytes=kv_cache_bytes)
    rng = random.Random(f"{name} {kv_cache_bytes}")
    lengths = set()
    for number, batch in enumerate(random_batches(rng, 10)):
        rows = backend.evaluate(batch)
        assert all(row.dtype == np.float32 and row.shape == (VOCABULARY,) for row in rows)
        assert largest_error(model, batch, rows) < TOLERANCE
        assert backend.counters()["kv_bytes"] <= kv_cache_bytes
        lengths |= {len(prefix) for prefix in batch}
        if number == 6:
            backend.clear()
            assert backend.counters()["kv_bytes"] == 0
    assert max(lengths) > 5 * WINDOW, "the windows hid nothing"


@pytest.mark.parametrize("name", INCREMENTAL)
def test_these_architectures_take_the_incremental_path(name: str) -> None:
    backend = HFBackend(tiny_model(name))
    prompt = Prefix.root().descend(range(10))
    backend.evaluate([prompt])
    before = backend.counters()
    backend.evaluate([prompt.child(3), prompt.child(4)])
    after = backend.counters()
    assert "keys and values are kept" in backend.path_description
    assert after["tokens_evaluated"] - before["tokens_evaluated"] == 2


@pytest.mark.parametrize("name", OWN_CACHE)
def test_these_architectures_have_caches_of_their_own_and_say_why(name: str) -> None:
    backend = HFBackend(tiny_model(name))
    assert "every sequence has a cache of its own" in backend.path_description
    assert "not otherwise, because" in backend.path_description
    assert ("token by token" in backend.path_description) == (name == "mamba")
    prompt = Prefix.root().descend(range(10))
    children = [prompt.child(3), prompt.child(4)]
    backend.evaluate(children)
    assert backend.counters()["tokens_evaluated"] == 12
    assert largest_error(backend.model, children, backend.evaluate(children)) < TOLERANCE
    backend.evaluate([children[0].child(1), children[1].child(1), prompt.child(9)])
    assert backend.counters()["tokens_evaluated"] == 12 + 2 + 3
    assert backend.counters()["tokens_reused"] == 2 * 10 + 2 * 10 + 2 * 11 + 10


@pytest.mark.parametrize("name", OWN_CACHE)
def test_own_caches_can_be_kept(name: str) -> None:
    backend = HFBackend(tiny_model(name), kv_cache_bytes=0)
    root = Prefix.root()
    backend.keep(root.descend(range(10)))
    backend.evaluate([root.descend([5, 6, 7])])
    before = backend.counters()
    backend.evaluate([root.descend(range(11)), root.descend([*range(10), 4])])
    assert backend.counters()["tokens_evaluated"] - before["tokens_evaluated"] == 2
    assert backend.counters()["kv_bytes"] == before["kv_bytes"] > 0
    backend.clear()
    assert backend.counters()["kv_bytes"] == 0


def test_attention_that_comes_out_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hf_attention.AttentionPass.attend
    for fault in (lambda out: out * 1.1, lambda out: out * float("nan")):
        monkeypatch.setattr(
            hf_attention.AttentionPass, "attend", lambda *args, fault=fault: fault(right(*args))
        )
        backend = HFBackend(tiny_model("llama"))
        assert "because log-probabilities differ" in backend.path_description
        prompt = Prefix.root().descend(range(10))
        batch = [prompt, prompt.child(3)]
        assert largest_error(backend.model, batch, backend.evaluate(batch)) < TOLERANCE


def test_attention_options_that_are_not_known_are_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_attention, "UNDERSTOOD", frozenset({"scaling", "softcap"}))
    assert "because trying gave" in HFBackend(tiny_model("mistral")).path_description
    assert "'sliding_window' is not implemented" in HFBackend(tiny_model("mistral")).path_description


def test_a_rotary_embedding_that_changes_with_the_length_is_computed_whole() -> None:
    def change(config) -> None:
        config.rope_parameters = config.rope_parameters | {"rope_type": "dynamic", "factor": 2.0}

    backend = HFBackend(tiny_model("llama", change=change))
    assert "every sequence is computed whole: its 'dynamic' rotary" in backend.path_description
    assert backend.counters()["kv_bytes"] == 0
    prompt = Prefix.root().descend(range(10))
    batch = [prompt, prompt.child(3), prompt.child(4)]
    assert largest_error(backend.model, batch, backend.evaluate(batch)) < TOLERANCE
    assert backend.counters()["tokens_evaluated"] == 10 + 11 + 11


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2", "gemma3", "gpt_oss"])
@pytest.mark.parametrize("fault", ["none", "position", "key"])
def test_a_wrong_position_or_a_dropped_key_is_seen(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tolerance means something: small faults give errors far above it."""
    model = tiny_model(name)
    backend = HFBackend(model)
    prompt = Prefix.root().descend(random_ids(random.Random(1), 30))
    backend.evaluate([prompt])
    if fault == "position":
        right = Run.position.fget
        monkeypatch.setattr(Run, "position", property(lambda run: right(run) + 1))
    elif fault == "key":
        [segment] = backend._evaluator.tree.segments
        with torch.inference_mode():
            segment.keys[:, :, 28] = 0.0
    error = largest_error(model, [prompt.child(5)], backend.evaluate([prompt.child(5)]))
    assert error < TOLERANCE if fault == "none" else error > 10 * TOLERANCE


def test_a_window_off_by_one_would_be_seen() -> None:
    model = tiny_model("mistral")
    child = Prefix.root().descend(random_ids(random.Random(2), 30))
    expected = whole_logprobs(model, child)
    model.config.sliding_window = WINDOW + 1
    for layer in model.model.layers:
        layer.self_attn.sliding_window = WINDOW + 1
    assert (whole_logprobs(model, child) - expected).abs().max().item() > 10 * TOLERANCE


def test_softcap_is_applied() -> None:
    capped, free = tiny_model("gemma2"), tiny_model("gemma2")
    for layer in free.model.layers:
        layer.self_attn.attn_logit_softcapping = None
    prefix = Prefix.root().descend(random_ids(random.Random(3), 20))
    assert (whole_logprobs(capped, prefix) - whole_logprobs(free, prefix)).abs().max() > 10 * TOLERANCE


# What a user sees of it


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_users_own_calls_are_untouched(implementation: str) -> None:
    model = tiny_model("llama")
    model.set_attn_implementation(implementation)
    input_ids = torch.tensor([random_ids(random.Random(4), 12), random_ids(random.Random(5), 12)])
    mask = torch.ones_like(input_ids)
    mask[0, :4] = 0
    forwards = {name: module.forward for name, module in model.named_modules()}
    with torch.no_grad():
        before = model(input_ids, attention_mask=mask).logits
        backend = HFBackend(model)
        backend.evaluate([Prefix.root().descend(range(5))])
        after = model(input_ids, attention_mask=mask).logits
    assert torch.equal(before, after)
    assert model.config._attn_implementation == implementation
    assert all(module.forward == forwards[name] for name, module in model.named_modules())
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_another_threads_call_during_a_pass_is_untouched(implementation: str) -> None:
    model = tiny_model("mistral")
    model.set_attn_implementation(implementation)
    input_ids = torch.tensor([random_ids(random.Random(4), 12), random_ids(random.Random(5), 12)])
    mask = torch.ones_like(input_ids)
    mask[0, :4] = 0
    backend = HFBackend(model)
    with torch.no_grad():
        before = model(input_ids, attention_mask=mask).logits
    seen = []

    def call() -> None:
        with torch.no_grad():
            seen.append((model.config._attn_implementation, model(input_ids, attention_mask=mask).logits))

    def during_our_pass(*_: object) -> None:
        handle.remove()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    handle = model.model.layers[0].register_forward_pre_hook(during_our_pass)
    backend.evaluate([Prefix.root().descend(range(5))])
    [(name, during)] = seen
    assert name == hf_attention.NAME, "the call was not made during a pass"
    assert torch.equal(before, during)


def test_two_models_with_one_configuration_object() -> None:
    config = tiny_model("llama").config
    models = [transformers.AutoModelForCausalLM.from_config(config).eval() for _ in range(2)]
    backends = [HFBackend(model) for model in models]
    prefix = Prefix.root().descend(random_ids(random.Random(6), 9))
    rows = []

    def during_a_pass_of_the_first(*_: object) -> None:
        handle.remove()
        thread = threading.Thread(target=lambda: rows.extend(backends[1].evaluate([prefix])))
        thread.start()
        thread.join()

    handle = models[0].model.layers[0].register_forward_pre_hook(during_a_pass_of_the_first)
    first = backends[0].evaluate([prefix])
    assert largest_error(models[0], [prefix], first) < TOLERANCE
    assert largest_error(models[1], [prefix], rows) < TOLERANCE
    assert config._attn_implementation == "sdpa"


def test_every_pass_is_a_call_of_the_model() -> None:
    model = tiny_model("gpt2")
    backend = HFBackend(model)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    prompt = Prefix.root().descend(range(8))
    backend.evaluate([prompt])
    backend.evaluate([prompt.child(1), prompt.child(2)])
    assert len(calls) == backend.counters()["forward_passes"] == 2


def test_an_adapter_around_a_model_takes_the_incremental_path() -> None:
    class Adapter(torch.nn.Module):
        """Takes any argument, as adapters of the peft library do."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.base_model = model
            self.config = model.config

        def get_base_model(self) -> torch.nn.Module:
            return self.base_model

        def get_input_embeddings(self) -> torch.nn.Module:
            return self.base_model.get_input_embeddings()

        def forward(self, *args: object, **options: object) -> object:
            return self.base_model(*args, **options)

    model = tiny_model("llama")
    backend = HFBackend(Adapter(model).eval())
    prompt = Prefix.root().descend(range(8))
    for batch in ([prompt], [prompt.child(1), prompt.child(2)]):
        assert largest_error(model, batch, backend.evaluate(batch)) < TOLERANCE
    assert backend.counters()["tokens_evaluated"] == 10


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_training_mode_is_suspended_and_restored(name: str) -> None:
    model = tiny_model(name)
    prefix = Prefix.root().descend(random_ids(random.Random(7), 9))
    expected = whole_logprobs(model, prefix)
    model.train()
    model.transformer.h[1].eval()
    modes = [module.training for module in model.modules()]
    assert (whole_logprobs(model, prefix) - expected).abs().max() > 10 * TOLERANCE, "no dropout to switch off"
    row = HFBackend(model).evaluate([prefix])[0]
    assert (torch.log_softmax(torch.tensor(row), -1) - expected).abs().max() < TOLERANCE
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_an_exception_leaves_everything_whole(name: str) -> None:
    model = tiny_model(name)
    backend = HFBackend(model)
    rng = random.Random(8)
    prompt = Prefix.root().descend(random_ids(rng, 40))
    children = [prompt.child(token) for token in range(4)]
    backend.evaluate(children)
    implementation = model.config._attn_implementation
    assert implementation != hf_attention.NAME
    grandchildren = [child.child(token) for child in children[:3] for token in (1, 2)]
    grandchildren.append(Prefix.root().descend(random_ids(rng, 50)))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("from a hook")

    last = [module for module in model.modules() if hasattr(module, "layer_idx")][-1]
    handle = last.register_forward_pre_hook(fail)
    with pytest.raises(ZeroDivisionError, match="from a hook"):
        backend.evaluate(grandchildren)
    handle.remove()
    assert model.config._attn_implementation == implementation
    assert not any("forward" in module.__dict__ for module in model.modules())
    for batch in (grandchildren, children, [node.child(3) for node in grandchildren]):
        assert largest_error(model, batch, backend.evaluate(batch)) < TOLERANCE


# Memory


def test_out_of_memory_halves_the_batch() -> None:
    model = tiny_model("llama")
    backend = HFBackend(model)
    prompt = Prefix.root().descend(random_ids(random.Random(9), 10))
    backend.evaluate([prompt])
    sizes = []

    def limited(module: object, args: object, kwargs: dict) -> None:
        sizes.append(kwargs["input_ids"].numel())
        if sizes[-1] > 3:
            raise torch.OutOfMemoryError("no room")

    handle = model.register_forward_pre_hook(limited, with_kwargs=True)
    children = [prompt.child(token) for token in range(10)]
    rows = backend.evaluate(children)
    handle.remove()
    assert largest_error(model, children, rows) < TOLERANCE
    assert sizes[0] == 10
    assert {size for size in sizes if size <= 3}


def test_out_of_memory_for_a_single_sequence_is_raised() -> None:
    model = tiny_model("llama")
    backend = HFBackend(model)

    def none_at_all(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    handle = model.register_forward_pre_hook(none_at_all)
    prefixes = [Prefix.root().descend([1, 2]), Prefix.root().descend([3])]
    with pytest.raises(torch.OutOfMemoryError):
        backend.evaluate(prefixes)
    handle.remove()
    assert largest_error(model, prefixes, backend.evaluate(prefixes)) < TOLERANCE


def test_rows_of_logits_are_split_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, passes in (("llama", 3), ("bloom", 4)):  # the latter computes the prompt apart
        model = tiny_model(name)
        backend = HFBackend(model)
        monkeypatch.setattr("hfppl.llms.hf_forward.LOGITS_BYTES_PER_PASS", 8 * VOCABULARY * 4)
        prompt = Prefix.root().descend(range(3))
        children = [prompt.child(token) for token in range(10)]
        assert largest_error(model, children, backend.evaluate(children)) < TOLERANCE
        assert backend.counters()["forward_passes"] == passes
        monkeypatch.undo()


# Half precision


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_bfloat16(name: str) -> None:
    """The engine rounds no worse than the model's own pass does: both are compared with float64."""
    model = tiny_model(name).to(torch.bfloat16)
    exact = tiny_model(name).to(torch.bfloat16).to(torch.float64)
    backend = HFBackend(model)
    assert "keys and values are kept" in backend.path_description
    rng = random.Random(10)
    prompt = Prefix.root().descend(random_ids(rng, 40))
    batches = [[prompt], [prompt.child(token) for token in range(8)]]
    batches.append([node.child(token) for node in batches[1] for token in (3, 4)])
    ours, plain = [], []
    for batch in batches:
        for prefix, row in zip(batch, backend.evaluate(batch), strict=True):
            assert row.dtype == np.float32
            truth = whole_logprobs(exact, prefix)
            ours.append((torch.log_softmax(torch.tensor(row), -1) - truth).abs().mean().item())
            plain.append((whole_logprobs(model, prefix) - truth).abs().mean().item())
    assert np.mean(ours) < 1.5 * np.mean(plain) + 1e-3


# Loading


def test_a_model_that_is_not_there(tmp_path) -> None:
    with pytest.raises(ModelUnavailableError, match="Check the spelling and the network"):
        hf_loading.load_pretrained(tmp_path / "nothing", local_files_only=True)
    with pytest.raises(ModelUnavailableError, match="cannot be had"):
        hf_loading.load_tokenizer("nobody/has-such-a-model", local_files_only=True)


def test_default_kv_limit_is_a_share_of_memory() -> None:
    assert 2**20 < hf.default_kv_bytes(torch.device("cpu")) < 2**45


def test_max_context() -> None:
    assert HFBackend(tiny_model("gpt2")).max_context == 160
    assert HFBackend(tiny_model("mamba")).max_context is None
