"""Pictures as SVG for a page: text as text, colours as CSS variables, so that one picture serves light and dark."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = ("#0a0101", "#0a0202", "#0a0303", "#0a0404", "#0a0505", "#0a0606", "#0a0707", "#0a0808")
"""Drawn with, and replaced by what the page says they are."""

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {
    color: f"--c{number}" for number, color in enumerate(SERIES, 1)
}
DASHES = (0, (4, 3))
TENTH = 0.1
WIDE, NARROW = 5.4, 4.0
"""Inches, of 72 units of the page: a column of it on a wide screen, and all of a phone's, whose letters are as large."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9.5,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 1.4,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.6,
}


class Picture:
    """Axes below each other, to be drawn on inside `with drawing(...)`."""

    def __init__(self, axes: "Sequence[Axes]") -> None:
        self.axes = list(axes)
        self.svg = ""


@contextmanager
def drawing(
    label: str, width: float = WIDE, *, rows: int = 1, height: float = 2.2, is_bar: bool = False
) -> Iterator[Picture]:
    """Axes of `height` inches in all, along the same x; their `svg` is there at the end. `label` says what is to be
    seen. The page knows it by its class: a `bar` is stretched, of a chart the `wide` or the `narrow` one is shown.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    kind = "bar" if is_bar else "chart wide" if width == WIDE else "chart narrow"
    with mpl.rc_context(_STYLE | {"svg.hashsalt": label + kind, "figure.figsize": (width, height)}):
        figure = Figure(layout=None if is_bar else "constrained")
        if is_bar:
            figure.subplots_adjust(left=0, right=1, bottom=0, top=1)
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        picture = Picture(list(axes))
        yield picture
        text = StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        picture.svg = _inlined(text.getvalue(), label, kind)


def _inlined(svg: str, label: str, kind: str) -> str:
    """The `svg` element alone, as wide as where it stands, without ids that another picture has, too, and without style for the whole page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"font: [^;\"]*?([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    for color, name in _VARIABLES.items():
        svg = svg.replace(color, f"var({name})")
    aspect = "none" if kind == "bar" else "xMidYMid"
    [view] = re.findall(r'viewBox="[^"]*"', svg)
    return re.sub(
        r"^<svg[^>]*>",
        f'<svg role="img" class="{kind}" preserveAspectRatio="{aspect}" aria-label="{label}" {view}>',
        svg,
    ).strip()


def legend(axes: "Axes", columns: int = 4) -> None:
    """Above the axes, where no line can run; half as many columns in a narrow picture."""
    import matplotlib as mpl

    is_narrow = mpl.rcParams["figure.figsize"][0] < WIDE
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns // 2 if is_narrow else columns)


def short(number: float, _: Any = None) -> str:
    """`950`, `1.2k`, `40k`, `3M`: as a tick says it."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def percent(share: float, _: Any = None) -> str:
    return f"{100 * share:,.0f}%" if share >= TENTH or share == 0 else f"{100 * share:.2g}%"


def number_ticks(axes: "Axes", tell: Callable[[float, Any], str] = short, *, whole: bool = False) -> None:
    """Few marks on the upright axis, in short, from zero up; at whole numbers where things are counted."""
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    axes.yaxis.set_major_formatter(tell)
    axes.grid(visible=False, axis="x")


def few_log_ticks(axes: "Axes") -> None:
    """On both axes, at 1, 2 and 5 of each power of ten; three where the axis has less than two of those."""
    from matplotlib.ticker import LinearLocator, LogLocator, NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [digit * 10.0**power for power in exponents for digit in (1, 2, 5)]
        has_two = sum(low <= mark <= high for mark in found) > 1
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if has_two else LinearLocator(3))
        axis.set_major_formatter(short)
        axis.set_minor_locator(NullLocator())


def time_ticks(axes: "Axes", longest: float, whole: float) -> None:
    """Along the time since the run's start, in the unit that fits a run of `whole` seconds, at round places."""
    from matplotlib.ticker import MultipleLocator

    size, unit = next((pair for pair in ((3600, "h"), (60, "min")) if whole > 2 * pair[0]), (1, "s"))
    steps = [digit * 10**power for power in range(-1, 6) for digit in (1, 2, 5)]
    step = next(step for step in steps if longest / size / step <= 7)  # noqa: PLR2004 - marks that have room
    axes.xaxis.set_major_locator(MultipleLocator(step * size))
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds / size:.3g}")
    axes.set_xlim(0, longest)
    axes.set_xlabel(f"{unit} since the start of the run")
