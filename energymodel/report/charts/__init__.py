"""Charts as SVG text, for report pages, notebooks and the explorer.

A chart is a frozen dataclass: `svg(width)` draws it, `table()` is the data behind it. Drawing takes about a millisecond
and needs no library in the browser. Colors and text styles are in `charts.css`, which a page includes once.
"""

from energymodel.report.charts.axes import Axis
from energymodel.report.charts.bars import Bar, GroupedBars, Part, StackedBars
from energymodel.report.charts.chart import AbstractChart, chart_css
from energymodel.report.charts.figure import figure_html
from energymodel.report.charts.intervals import Interval, Intervals
from energymodel.report.charts.lines import Level, Lines, Point, Series
from energymodel.report.charts.sankey import Flow, Sankey
from energymodel.report.charts.table import Column, Table
from energymodel.report.charts.timeline import Box, RankTimeline
from energymodel.report.charts.tornado import Swing, Tornado

__all__ = [
    "AbstractChart",
    "Axis",
    "Bar",
    "Box",
    "Column",
    "Flow",
    "GroupedBars",
    "Interval",
    "Intervals",
    "Level",
    "Lines",
    "Part",
    "Point",
    "RankTimeline",
    "Sankey",
    "Series",
    "StackedBars",
    "Swing",
    "Table",
    "Tornado",
    "chart_css",
    "figure_html",
]
