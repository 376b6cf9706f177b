"""Pictures of a run, of its posterior and of next tokens, drawn by matplotlib.

Each function draws on the matplotlib Axes it is given, or on those of a new figure, and returns them.
Colours can be told apart by the colour-blind and in grey.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .display import token_label, visible
from .distributions import LMContext
from .errors import ArgumentError, MissingLibraryError, NoMassError
from .glyphs import drawable
from .inference import Particles, SMCRecord
from .llms import CachedCausalLM
from .numerics import softmax

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["next_tokens", "posterior", "trace"]

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#b0b0b0"
_LABEL_COLUMNS = 40
_MANY_STEPS = 40  # from here on, steps are not marked one by one

Series = tuple[str, str, NDArray[np.float64]]  # a name, a colour, and (K,) probabilities


def trace(particles_or_record: Particles | SMCRecord, ax: "Axes | None" = None) -> "Axes":
    """The effective sample size and the estimate of log Z, step by step, and where was resampled.

    Both are those before resampling, twists included. Where all particles are dead, log Z has no point.

    Args:
        particles_or_record: what a driver returned, or its record.
        ax: where to draw; a new figure by default.

    Returns:
        The axes of the effective sample size. Those of log Z share their steps.

    Raises:
        ArgumentError: if there is no record of any step, as after `enumerate_exact`.
        MissingLibraryError: if matplotlib is not installed.
    """
    record = particles_or_record.record if isinstance(particles_or_record, Particles) else particles_or_record
    if record is None or not record.steps:
        raise ArgumentError(
            "there is no step to draw: `trace` needs the particles or the record of a run of "
            "smc_standard, smc_steer or importance_sampling that has taken a step"
        )
    ax = _axes(ax, 3.2)
    from matplotlib.ticker import MaxNLocator

    steps = [step.number for step in record.steps]
    ess = [step.ess for step in record.steps]
    log_z = np.array([step.log_mean_weight for step in record.steps])
    log_z[log_z == -np.inf] = np.nan
    marker = "o" if len(steps) < _MANY_STEPS else ""

    lines = ax.plot(steps, ess, color=_BLUE, marker=marker, markersize=4, label="ESS")
    ax.set_xlabel("step")
    ax.set_ylabel("effective sample size", color=_BLUE)
    ax.set_ylim(0, 1.05 * record.n_particles)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    right = ax.twinx()
    lines += right.plot(
        steps, log_z, color=_ORANGE, linestyle="--", marker=marker and "s", markersize=4, label="log Z"
    )
    right.set_ylabel("estimate of log Z (nats)", color=_ORANGE)
    right.ticklabel_format(axis="y", useOffset=False)

    ax.set_xlim(steps[0] - 0.5, steps[-1] + 0.5)

    resampled = [step.number - 0.5 for step in record.steps[1:] if step.resampled]  # between two steps
    if resampled:
        style: dict[str, Any] = {"color": "#606060", "linestyle": "", "marker": "^", "markersize": 5}
        at_the_bottom = ax.get_xaxis_transform()
        lines += ax.plot(
            resampled, [0.03] * len(resampled), transform=at_the_bottom, label="resampled", **style
        )
    ax.legend(handles=lines, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return ax


def posterior(
    particles: Particles, key: Callable[[Any], Any] = str, top: int = 10, ax: "Axes | None" = None
) -> "Axes":
    """The posterior as bars, the most probable on top.

    Args:
        particles: what a driver returned.
        key: what to look at, a function of the particle: its text, unless told otherwise.
        top: how many bars; the others are told by their number and their probability together.
        ax: where to draw; a new figure by default.

    Raises:
        NoMassError: if no particle has finished alive.
        MissingLibraryError: if matplotlib is not installed.
    """
    masses = particles.posterior(key)
    if not masses:
        raise NoMassError(
            f"no particle is both finished and alive ({particles.n_dead} of {len(particles)} are dead, "
            f"{particles.n_unfinished} unfinished), so there is nothing to draw"
        )
    labels = [_label(value) for value in masses]
    return _bars(ax, labels, [("posterior", _BLUE, np.array(list(masses.values())))], top)


def next_tokens(
    lm_or_context: CachedCausalLM | LMContext,
    logits: ArrayLike | None = None,
    guided: ArrayLike | None = None,
    top: int = 10,
    ax: "Axes | None" = None,
) -> "Axes":
    """The probabilities of the likeliest next tokens as bars, beside those under a rule if it is given.

    Args:
        lm_or_context: the language model whose tokens these are. Or a context, which by itself gives its
            own next tokens, and under its mask if it has one; for which its language model is asked.
        logits: (V,) nats, logits or log-probabilities without the rule.
        guided: (V,) the same with the rule, -inf where it forbids a token.
        top: how many tokens: those likeliest in either.
        ax: where to draw; a new figure by default.

    Raises:
        ArgumentError: without logits where there is no context; for a number of logits other than V.
        NoMassError: if every token has probability zero.
        NumericalError: if a logit is NaN or +inf.
        MissingLibraryError: if matplotlib is not installed.
    """
    if isinstance(lm_or_context, LMContext):
        lm = lm_or_context.lm
        if logits is None:
            logits, guided = _rows_of(lm_or_context)
    else:
        lm = lm_or_context
    if logits is None:
        raise ArgumentError(
            "there are no logits to draw: give `logits=lm.next_token_logits_unbatched(prompt)`, or a context"
        )
    series = [("next token", _BLUE, _probabilities(lm, "logits", logits))]
    if guided is not None:
        free = ("unguided", _GREY, series[0][2])
        series = [free, ("guided", _BLUE, _probabilities(lm, "guided", guided))]
    order = np.argsort(-np.max([values for *_, values in series], axis=0), kind="stable")
    order = order[: np.count_nonzero(np.any([values > 0 for *_, values in series], axis=0))]
    if not len(order):
        raise NoMassError("there is nothing to draw: every token has probability zero")
    labels = [token_label(lm.byte_vocab[i]) for i in order[:top]]
    return _bars(ax, labels, [(name, colour, values[order]) for name, colour, values in series], top)


def _rows_of(context: LMContext) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """The log-probabilities of a context's next token, without its mask and with it."""
    row = context.lm.row_now(context.lm.prefix(context.tokens))
    free = row.logprobs(context.temp)
    if context.model_mask == context.lm.masks.ALL_TOKENS:
        return free, None
    return free, row.logprobs(context.temp, context.model_mask.factors)


def _probabilities(lm: CachedCausalLM, name: str, logits: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(logits, dtype=np.float64)
    if values.shape != (lm.vocab_size,):
        raise ArgumentError(
            f"{name} holds one number for each of the {lm.vocab_size} token ids, "
            f"but has the shape {values.shape}"
        )
    return softmax(values)


def _label(value: Any) -> str:
    return (
        visible(value, _LABEL_COLUMNS)
        if isinstance(value, str)
        else visible(str(value), _LABEL_COLUMNS)[1:-1]
    )


def _bars(ax: "Axes | None", labels: Sequence[str], series: Sequence[Series], top: int) -> "Axes":
    """Horizontal bars, from above.

    Args:
        ax: where to draw.
        labels: at least min(K, top) of them.
        series: the bars, in the order of the labels; what lies beyond `top` is summed up.
        top: how many to show.
    """
    if top < 1:
        raise ArgumentError(f"top is how many bars are drawn, at least 1, not {top}")
    n_all = len(series[0][2])
    n = min(top, n_all)
    n_others = n_all - n
    ax = _axes(ax, 0.9 + (0.3 + 0.14 * (len(series) - 1)) * (n + (n_others > 0)))
    shown = [*labels[:n], *[f"({n_others:,} more)"] * (n_others > 0)]
    longest = max((float(values[:n].max(initial=0.0)) for *_, values in series), default=0.0) or 1.0
    height = 0.8 / len(series)
    for k, (name, colour, values) in enumerate(series):
        lengths = [*values[:n], *[0.0] * (n_others > 0)]
        told = [*values[:n], *[max(0.0, float(values[n:].sum()))] * (n_others > 0)]
        at = np.arange(len(shown)) + (k - (len(series) - 1) / 2) * height
        bars = ax.barh(at, lengths, height=0.9 * height, color=colour, label=name)
        ax.bar_label(bars, [_number(p) for p in told], padding=3, fontsize="small")
    texts, families = drawable(shown, _LABEL_COLUMNS)
    ax.set_yticks(range(len(shown)), texts, fontfamily=families, parse_math=False, usetex=False)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(0, 1.18 * longest)
    ax.set_xlabel("probability")
    ax.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        ax.legend(loc="lower right", frameon=False)
    return ax


def _number(probability: float) -> str:
    return f"{probability:.3f}" if probability >= 0.001 or probability == 0 else f"{probability:.0e}"


def _axes(ax: "Axes | None", height: float) -> "Axes":
    """The axes given, or new ones; height in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingLibraryError(
            'pictures need matplotlib, which is not installed: pip install "hfppl[plot]"'
        ) from error
    return pyplot.subplots(figsize=(7.5, height), layout="constrained")[1]
