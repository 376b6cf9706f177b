"""Loading a transformers causal language model and its tokenizer, with errors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from ..errors import ModelUnavailableError


def load_pretrained(
    model_id: str | Path,
    *,
    token: str | None = None,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    device_map: Any = None,
    load_in_8bit: bool = False,
    bitsandbytes_opts: dict[str, Any] | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> tuple[Any, Any]:
    """A causal language model in evaluation mode, and its tokenizer.

    Args:
        model_id: a name on the Hugging Face hub, or a local folder.
        token: access token for a gated or private model.
        dtype: of the weights. Default: what the checkpoint says on an accelerator, float32 on a CPU,
            where half precision is rarely faster and always coarser.
        device: where to put the model. Default: CUDA if there is any, else the CPU. (Apple's MPS is used
            when asked for by name: several float32 kernels are less exact there.)
        device_map: placement by accelerate, instead of `device`.
        load_in_8bit: quantise to 8 bits with bitsandbytes, which also decides the placement.
        bitsandbytes_opts: options of transformers' `BitsAndBytesConfig`, likewise.
        trust_remote_code: whether code that comes with the checkpoint may run.
        **options: handed to the model's `from_pretrained`.

    Raises:
        ModelUnavailableError: the files cannot be had, or a package needed to read them is missing.
    """
    name = str(model_id)
    tokenizer = load_tokenizer(name, token=token, trust_remote_code=trust_remote_code, **_of_files(options))
    if load_in_8bit or bitsandbytes_opts:
        quantization = {"load_in_8bit": load_in_8bit} | (bitsandbytes_opts or {})
        options["quantization_config"] = transformers.BitsAndBytesConfig(**quantization)
        device_map = "auto" if device_map is None else device_map
    target = None
    if device_map is None:
        default = "cuda" if torch.cuda.is_available() else "cpu"
        target = torch.device(default if device is None else device)
    if dtype is None:
        dtype = torch.float32 if target is not None and target.type == "cpu" else "auto"
    with _loading(name), _quiet(Path(name).is_dir()):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            device_map=device_map,
            token=token,
            trust_remote_code=trust_remote_code,
            **options,
        )
    if target is not None:
        model.to(target)
    model.eval()
    return model, tokenizer


def load_tokenizer(
    model_id: str | Path, *, token: str | None = None, trust_remote_code: bool = False, **options: Any
) -> Any:
    """The tokenizer of a model, without the model.

    Raises:
        ModelUnavailableError: the files cannot be had, or a package needed to read them is missing.
    """
    name = str(model_id)
    with _loading(name):
        return transformers.AutoTokenizer.from_pretrained(
            name, token=token, trust_remote_code=trust_remote_code, **options
        )


def _of_files(options: dict[str, Any]) -> dict[str, Any]:
    """Those options of a model that say which files are meant, and so hold for its tokenizer too."""
    names = ("revision", "subfolder", "local_files_only", "cache_dir", "force_download", "proxies")
    return {name: options[name] for name in names if name in options}


@contextmanager
def _loading(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ModelUnavailableError(
            f"{name!r} needs a package that is not installed: {error}. "
            "Install it, or load the model without what needs it."
        ) from error
    except OSError as error:
        raise ModelUnavailableError(
            f"the files of {name!r} cannot be had: {error}\n"
            "Check the spelling and the network; pass a local folder if there is no network; for a gated or "
            "private model pass an access token."
        ) from error


@contextmanager
def _quiet(local: bool) -> Iterator[None]:
    """No progress bar for files that are here already: it would be over before it is read."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    if local and shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if local and shown:
            logging.enable_progress_bar()
