"""Packed linear layers compute what the layers compute, during passes of ours only."""

import threading
from pathlib import Path

import pytest
import torch
from tiny_models import VOCABULARY, largest_error, tiny_model
from torch import nn
from transformers.pytorch_utils import Conv1D

from hfppl.llms import fast_linear
from hfppl.llms.fast_linear import FastLinears, fast_linears
from hfppl.llms.hf import HFBackend
from hfppl.llms.hf_forward import CausalForward
from hfppl.llms.hf_plain import PlainEvaluator
from hfppl.llms.prefix import Prefix

pytestmark = pytest.mark.skipif(not fast_linear._works(), reason="torch has no packed linear layers here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings are remembered between processes: not those of these tests."""
    monkeypatch.setenv("HFPPL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(fast_linear, "SMALLEST", 1)


def test_packed_layers_equal_plain_ones() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(24, 40), nn.Linear(24, 40, bias=False), Conv1D(40, 24)])
    nn.init.normal_(model[2].bias)
    fast = FastLinears(model, always=True)
    assert len(fast) == 3
    assert fast.n_bytes == 3 * 24 * 40 * 4
    for shape in ((1, 24), (2, 5, 24), (1, 100, 24), (0, 24)):
        rows = torch.randn(shape)
        with torch.inference_mode():
            plain = [layer(rows) for layer in model]
            with fast.applied():
                assert all("forward" in layer.__dict__ for layer in model)
                packed = [layer(rows) for layer in model]
        assert not any("forward" in layer.__dict__ for layer in model)
        for a, b in zip(packed, plain, strict=True):
            assert a.shape == b.shape
            assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox"])
def test_a_model_with_packed_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(name)
    used = []
    multiply = fast_linear._multiply
    forward = CausalForward(model, FastLinears(model, always=True))
    monkeypatch.setattr(fast_linear, "_multiply", lambda *args: used.append(1) or multiply(*args))
    prefixes = [Prefix.root().descend(token % VOCABULARY for token in range(length)) for length in (1, 9, 70)]
    assert (
        largest_error(model, prefixes, [row.numpy() for row in PlainEvaluator(forward).evaluate(prefixes)])
        < 1e-4
    )
    assert len(used) >= 3 * 3 * 4


def changes() -> dict:
    def in_place(layer: nn.Linear) -> None:
        with torch.no_grad():
            layer.weight.mul_(2)

    def behind_the_back(layer: nn.Linear) -> None:
        layer.weight.data += 1.0

    def replaced(layer: nn.Linear) -> None:
        layer.weight = nn.Parameter(layer.weight.detach() * 3)

    def data_replaced(layer: nn.Linear) -> None:
        layer.weight.data = layer.weight.data * 3

    def to_double(layer: nn.Linear) -> None:
        layer.to(torch.float64).weight.data *= 2

    return {
        function.__name__: function
        for function in (in_place, behind_the_back, replaced, data_replaced, to_double)
    }


@pytest.mark.parametrize("change", changes().values(), ids=changes())
def test_changed_weights_are_noticed(change) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(24, 40)
    fast = FastLinears(nn.Sequential(layer), always=True)
    rows = torch.randn(5, 24)
    before = layer(rows)
    change(layer)
    rows = rows.to(layer.weight.dtype)
    with torch.inference_mode(), fast.applied():
        assert torch.allclose(layer(rows), nn.functional.linear(rows, layer.weight, layer.bias), atol=1e-5)
        assert not torch.allclose(layer(rows).float(), before, atol=1e-2)
    assert "forward" not in layer.__dict__


def test_a_changed_bias_is_used() -> None:
    layer = nn.Linear(24, 40)
    fast = FastLinears(nn.Sequential(layer), always=True)
    layer.bias.data += 1.0
    rows = torch.randn(5, 24)
    with torch.inference_mode(), fast.applied():
        assert torch.allclose(layer(rows), nn.functional.linear(rows, layer.weight, layer.bias), atol=1e-5)


def test_another_threads_call_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(24, 40)
    fast = FastLinears(nn.Sequential(layer), always=True)
    used = []
    multiply = fast_linear._multiply
    monkeypatch.setattr(fast_linear, "_multiply", lambda *args: used.append(1) or multiply(*args))
    rows = torch.randn(5, 24)
    with torch.inference_mode(), fast.applied():
        thread = threading.Thread(target=lambda: layer(rows))
        thread.start()
        thread.join()
        assert used == []
        layer(rows)
        assert used == [1]


def test_layers_are_given_back_after_an_exception() -> None:
    layer = nn.Linear(24, 40)
    fast = FastLinears(nn.Sequential(layer), always=True)
    with pytest.raises(ZeroDivisionError), fast.applied():
        raise ZeroDivisionError
    assert "forward" not in layer.__dict__


def test_what_is_left_alone() -> None:
    class Special(nn.Linear):
        pass

    wrapped = nn.Linear(8, 8)
    wrapped.forward = lambda rows: rows
    with torch.inference_mode():
        unversioned = nn.Linear(8, 8)
    layers = [Special(8, 8), nn.Linear(8, 8).to(torch.bfloat16), wrapped, unversioned]
    assert len(FastLinears(nn.ModuleList(layers), always=True)) == 0


def test_a_layer_wrapped_later_is_left_to_its_wrapper() -> None:
    layer = nn.Linear(8, 8)
    fast = FastLinears(nn.Sequential(layer), always=True)

    def wrapper(rows: torch.Tensor) -> str:
        return "wrapped"

    layer.forward = wrapper
    with fast.applied():
        assert layer(torch.zeros(1, 8)) == "wrapped"
    assert layer.forward is wrapper


def test_only_shapes_that_gain_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.ModuleList([nn.Linear(24, 40), nn.Linear(40, 24)])
    gains = {24: (True, True, False), 40: (True, False, True)}
    monkeypatch.setattr(fast_linear, "_time", lambda modules: gains[modules[0].in_features])
    fast = FastLinears(model)
    used = []
    multiply = fast_linear._multiply
    monkeypatch.setattr(fast_linear, "_multiply", lambda *args: used.append(1) or multiply(*args))
    with torch.inference_mode(), fast.applied():
        model[0](torch.zeros(20, 24))
        assert used == [1]
        model[0](torch.zeros(200, 24))
        model[1](torch.zeros(20, 40))
        assert used == [1]


def test_timing_gives_a_verdict_for_each_number_of_rows() -> None:
    verdict = fast_linear._time([nn.Linear(64, 64), nn.Linear(64, 64)])
    assert len(verdict) == 3
    assert all(isinstance(each, bool) for each in verdict)


def test_a_copy_that_is_not_equal_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "_multiply", lambda rows, copy, bias: torch.zeros(len(rows), 64))
    assert fast_linear._time([nn.Linear(64, 64)]) == (False, False, False)
    assert not fast_linear._works()


def test_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "_time", lambda modules: (True, True, True))
    model = tiny_model("llama")
    assert fast_linears(model, False) is None
    assert fast_linears(model, None) is not None
    monkeypatch.setenv("HFPPL_FAST_LINEAR", "0")
    assert fast_linears(model, None) is None
    assert fast_linears(model, True) is not None
    assert HFBackend(model)._forward.fast_linears is None
    assert HFBackend(model, fast_linear=True)._forward.fast_linears is not None


def test_nothing_is_packed_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "_free_memory", lambda: 1000.0)
    assert len(FastLinears(nn.Sequential(nn.Linear(24, 40)), always=True)) == 0


def test_what_was_timed_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def time_once(modules: list[nn.Module]) -> tuple[bool, ...]:
        timed.append(len(modules))
        return (False, True, len(timed) == 1)

    monkeypatch.setattr(fast_linear, "_time", time_once)
    for _ in range(3):
        fast = FastLinears(nn.Sequential(nn.Linear(24, 40)))
        assert list(fast._verdicts.values()) == [(False, True, True)]
    assert timed == [1]
    (tmp_path / "kernels.json").write_text("not JSON")
    FastLinears(nn.Sequential(nn.Linear(24, 40)))
    assert timed == [1, 1]


def test_small_layers_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_linear, "SMALLEST", 1000)
    monkeypatch.setattr(fast_linear, "_time", lambda modules: (True, True, True))
    assert len(FastLinears(nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 40)))) == 1
