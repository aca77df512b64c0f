"""How does a chart stand on a page: title, figure for wide and narrow screens, and the table behind it?"""

from energymodel.report.charts.chart import NARROW, WIDTH, AbstractChart
from energymodel.report.charts.svg import element, escape


def figure_html(chart: AbstractChart, width: float = WIDTH, *, narrow: bool = True, table: bool = True) -> str:
    """A `<figure>` with its title, and its table under "Data".

    **Arguments:**

    - `narrow`: whether a second drawing for narrow screens comes along; `charts.css` shows the one that fits.
    - `table`: whether the table comes along.
    """
    words = element("strong", escape(chart.title))
    words += element("span", escape(chart.subtitle)) if chart.subtitle else ""
    drawings = [element("div", chart.svg(width), class_="em-wide" if narrow else "em-any")]
    if narrow:
        drawings.append(element("div", chart.svg(NARROW), class_="em-narrow"))
    return element(
        "figure", element("figcaption", words), *drawings, data_html(chart) if table else "", class_="em-figure"
    )


def data_html(chart: AbstractChart) -> str:
    """The table behind a figure, folded; a script may add a button that copies it."""
    return element(
        "details",
        element("summary", "Data"),
        element("div", chart.table().html(), class_="em-scroll"),
        class_="em-data",
    )
