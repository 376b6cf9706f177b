"""Matrix products that suit few rows, on CPUs in float32.

A decoding step multiplies 1 to 100 rows by every weight matrix, and most of its time goes there. The
default kernel is made for many rows; oneDNN's, given the weights in a blocked layout, can be several
times faster at few, in the same float32 arithmetic (sums are taken in another order, so results differ
by rounding). Where it is faster depends on the processor, the shape and the number of rows, so each shape
is timed once on a machine (see `verdicts`), and only shapes that gain are packed.

Cost: a second copy of the weights that are packed, up to the size of the model; nothing is packed if that
would take more than half of the free memory. `HFPPL_FAST_LINEAR=0` in the environment, or
`fast_linear=False`, turns it off. The operations are not public ones of torch: they are looked for, checked
against the plain layers, and done without if they are missing. (Public ways were slower here: modules
converted by `torch.utils.mkldnn` reorder every input and output.)
"""

import functools
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from .cache_folder import cache_folder
from .verdicts import Verdicts

ROWS_HINT = 20  # rows that the packed layout is made for; others work too
ROW_STEPS = (4, 64)  # up to 4 rows, up to 64, more: timed at TIMED_ROWS, decided apart
TIMED_ROWS = (1, 20, 128)
WORTH = 1.1  # times faster, from which a shape is packed
TIMED_MODULES = 4  # of one shape, used in turn, so that weights come from memory as in a real pass
TIMED_ROUNDS = 3
TIMED_OPERATIONS = 1e9  # multiplications beyond which a timing is not worth its time
SMALLEST = 2**16  # weights below which a layer is not worth it
SAMPLES = 8  # entries of each weight that are compared before every pass


class _Here(threading.local):
    """Whether this thread is within a pass of ours."""

    active = False


_HERE = _Here()


@dataclass(eq=False)
class _Packed:
    """One layer with a packed copy of its weight.

    faster: for up to 4, up to 64 and more rows, whether the copy is to be used.
    """

    module: Any
    weight: Tensor
    copy: Tensor
    faster: tuple[bool, ...]
    version: int = 0
    pointer: int = 0
    flat: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    places: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))
    sample: bytes = b""

    def __post_init__(self) -> None:
        self.version, self.pointer = self.weight._version, self.weight.data_ptr()
        self.flat = self.weight.detach().reshape(-1).numpy()
        self.places = np.linspace(0, self.flat.size - 1, SAMPLES).astype(np.intp)
        self.sample = self.flat[self.places].tobytes()

    def is_current(self) -> bool:
        """Whether the weight is what was copied.

        Writing through `weight.data` leaves no trace in the version, as merging an adapter does; so a few
        entries are looked at as well.
        """
        weight = self.module.weight
        return (
            weight is self.weight
            and weight._version == self.version
            and weight.data_ptr() == self.pointer
            and self.flat[self.places].tobytes() == self.sample
        )

    def forward(self, rows: Tensor) -> Tensor:
        """What the layer computes."""
        if _HERE.active and rows.dtype is torch.float32:
            n_rows = rows.numel() // rows.shape[-1]
            if self.faster[(n_rows > ROW_STEPS[0]) + (n_rows > ROW_STEPS[1])]:
                return _multiply(rows, self.copy, self.module.bias)
        result: Tensor = type(self.module).forward(self.module, rows)
        return result


class FastLinears:
    """The layers of a model that are replaced by packed ones during passes of ours, and only then.

    Args:
        model: any module; layers that are not plain float32 ones on a CPU are left alone.
        always: pack every such layer and use the copies for any number of rows, without timing.
    """

    def __init__(self, model: nn.Module, *, always: bool = False) -> None:
        self._always = always
        self._verdicts: dict[tuple[type, torch.Size], tuple[bool, ...]] = {}
        smallest = 1 if always else SMALLEST
        plain: list[Any] = [module for module in model.modules() if _is_plain(module)]
        layers = [module for module in plain if module.weight.numel() >= smallest]
        n_bytes = sum(module.weight.nbytes for module in layers)
        if not layers or not _works() or n_bytes > _free_memory() / 2:
            layers = []
        shapes: dict[tuple[type, torch.Size], list[Any]] = {}
        for module in layers:
            shapes.setdefault((type(module), module.weight.shape), []).append(module)
        self._packed: list[_Packed] = []
        timed = Verdicts(cache_folder() / "kernels.json")
        for shape, modules in shapes.items():
            self._verdicts[shape] = (
                (True,) * len(TIMED_ROWS)
                if always
                else timed.get(_name(shape), functools.partial(_time, modules))
            )
            if self._verdicts[shape][1]:
                self._packed += [_pack(module, self._verdicts[shape]) for module in modules]

    def __len__(self) -> int:
        """How many layers are packed."""
        return len(self._packed)

    @property
    def n_bytes(self) -> int:
        """Memory of the copies."""
        return sum(layer.weight.nbytes for layer in self._packed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the copies in this thread, within; other threads' calls compute what they always do."""
        self._refresh()
        changed = []
        outer, _HERE.active = _HERE.active, True
        try:
            for layer in self._packed:
                attributes = layer.module.__dict__
                if "forward" not in attributes:  # else somebody wraps this layer: leave it to them
                    attributes["forward"] = layer.forward
                    changed.append(attributes)
            yield
        finally:
            for attributes in changed:
                attributes.pop("forward", None)
            _HERE.active = outer

    def _refresh(self) -> None:
        """Pack anew what has changed since."""
        stale = [index for index, layer in enumerate(self._packed) if not layer.is_current()]
        for index in stale:
            layer = self._packed[index]
            if _is_plain(layer.module):
                self._packed[index] = _pack(layer.module, layer.faster)
        if stale:
            self._packed = [layer for layer in self._packed if layer.is_current()]


def fast_linears(model: nn.Module, wanted: bool | None) -> FastLinears | None:
    """The packed layers of a model, or None if there are none or they are not wanted.

    Args:
        wanted: True and None: where they are faster, None unless the environment says no; False: never.
    """
    if wanted is False or (wanted is None and os.environ.get("HFPPL_FAST_LINEAR") == "0"):
        return None
    found = FastLinears(model)
    return found if len(found) else None


def _is_plain(module: Any) -> bool:
    if type(module) is not nn.Linear and type(module) is not Conv1D:
        return False
    weight = module.weight
    return (
        isinstance(weight, Tensor)
        and weight.dtype is torch.float32
        and weight.device.type == "cpu"
        and weight.layout is torch.strided
        and weight.is_contiguous()
        and not weight.is_inference()  # has no version by which a change could be seen
        and "forward" not in module.__dict__
    )


def _pack(module: Any, faster: tuple[bool, ...]) -> _Packed:
    return _Packed(module, module.weight, _packed_copy(module), faster)


@torch.no_grad()
def _packed_copy(module: Any) -> Tensor:
    weight = module.weight.detach()
    if type(module) is Conv1D:  # computes x W, not x W^T
        weight = weight.t().contiguous()
    copy: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
    return copy


def _multiply(rows: Tensor, copy: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, copy, bias, "none", [], "")
    return result


def _works() -> bool:
    """Whether the operations exist here and mean what they should."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(24, 40)
    rows = torch.randn((3, 24), generator=generator)
    try:
        with torch.inference_mode():
            found = _multiply(rows, _packed_copy(layer), layer.bias)
            return torch.allclose(found, layer(rows), atol=1e-5)
    except (AttributeError, RuntimeError, TypeError):
        return False


def _name(shape: tuple[type, torch.Size]) -> str:
    """What a timing depends on."""
    kind, size = shape
    return (
        f"{kind.__name__} {'x'.join(map(str, size))}, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads, {_processor()}"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or not a processor with a name
        return platform.processor() or platform.machine()


@torch.inference_mode()
def _time(modules: Sequence[Any]) -> tuple[bool, ...]:
    """For each number of rows that is timed, whether packed weights of this shape are equal and faster."""
    some = modules[:TIMED_MODULES]
    copies = [_packed_copy(module) for module in some]
    width = some[0].weight.shape[0 if type(some[0]) is Conv1D else 1]
    verdicts: dict[int, bool] = {}
    few, several, many = TIMED_ROWS
    for n_rows in (several, few, many):
        if not verdicts.get(several, True):  # nothing to gain where most of the time goes
            return (False,) * len(TIMED_ROWS)
        if verdicts and n_rows * some[0].weight.numel() * len(some) > TIMED_OPERATIONS:
            verdicts[n_rows] = verdicts[several]
            continue
        rows = torch.randn((n_rows, width), generator=torch.Generator().manual_seed(n_rows))

        def plain(rows: Tensor = rows) -> list[Tensor]:
            return [type(module).forward(module, rows) for module in some]

        def packed(rows: Tensor = rows) -> list[Tensor]:
            return [_multiply(rows, copy, module.bias) for module, copy in zip(some, copies, strict=True)]

        equal = all(_close(a, b) for a, b in zip(packed(), plain(), strict=True))
        seconds = [(_seconds(plain), _seconds(packed)) for _ in range(TIMED_ROUNDS)]
        # The quickest of each: a shared machine only ever makes things slower.
        gain = min(pair[0] for pair in seconds) / min(pair[1] for pair in seconds)
        verdicts[n_rows] = equal and gain >= WORTH
    return verdicts[few], verdicts[several], verdicts[many]


def _close(found: Tensor, expected: Tensor) -> bool:
    scale = expected.abs().max().item()
    return (found - expected).abs().max().item() <= 1e-4 * scale


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _free_memory() -> float:
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
