"""One chart of each kind, with long names, tiny parts and text that would break a page."""

from energymodel.report.charts import (
    AbstractChart,
    Axis,
    Bar,
    Box,
    Flow,
    GroupedBars,
    Interval,
    Intervals,
    Level,
    Lines,
    Part,
    Point,
    RankTimeline,
    Sankey,
    Series,
    StackedBars,
    Swing,
    Tornado,
)

GWH = 3.6e12
DAY = 86_400.0
HOSTILE = '<script>alert("x")</script> \u202ereversed\u202c & more'
PARTS = {
    "switching": 12.0,
    "leakage and fixed power, busy": 3.2,
    "memory traffic": 0.02,
    "links and switches": 2.0,
    "host, fans, network cards": 10.0,
    "waiting chips": 2.3,
    "power conversion": 1.2,
    "cooling": 0.9,
    "lighting, offices, other": 0.9,
    "nothing": 0.0,
}


def energy_bar(label: str, factor: float = 1.0) -> Bar:
    return Bar(label, tuple(Part(name, factor * value * GWH) for name, value in PARTS.items()))


def grouped() -> GroupedBars:
    pairs = [
        Bar(
            name,
            (Part("own plan", value * GWH, 0.8 * value * GWH, 1.3 * value * GWH), Part("found", 0.9 * value * GWH)),
        )
        for name, value in PARTS.items()
    ]
    return GroupedBars("Hosts save most", "J", tuple(pairs), axis="energy", limit=(12.5 * GWH, "what was asked for"))


def sankey() -> Sankey:
    flows = [
        Flow("grid", "chips", 17.52 * GWH),
        Flow("chips", "switching", 12.0 * GWH),
        Flow("chips", "leakage and fixed power, busy", 3.2 * GWH),
        Flow("chips", "memory traffic", 0.02 * GWH),
        Flow("chips", "waiting chips", 2.3 * GWH),
        Flow("grid", "host, fans, network cards", 10.0 * GWH),
        Flow("grid", "building", 3.0 * GWH),
        Flow("building", "power conversion", 1.2 * GWH),
        Flow("building", "cooling", 0.9 * GWH),
        Flow("building", "lighting, offices, other", 0.9 * GWH),
    ]
    return Sankey("Switching takes 39 % of the energy", "J", tuple(flows), "Energy from grid to bits")


def front() -> Lines:
    on_front = [(60.0 + day, 30.0 + 200.0 / (day + 3.0)) for day in range(30)]
    points = tuple(
        Point(
            day * DAY,
            energy * GWH,
            f"plan of {day} days",
            "knee" if day == 68.0 else "",
            0.9 * energy * GWH,
            1.1 * energy * GWH,
        )
        for day, energy in on_front
    )
    own = Series(
        HOSTILE,
        (Point(75 * DAY, 45 * GWH, label="own plan"), Point(75.4 * DAY, 45.5 * GWH, label="its neighbor")),
        "points",
    )
    levels = (Level(85 * DAY, "time limit", "x"), Level(50 * GWH, "energy limit"))
    axes = Axis("time", "s"), Axis("energy", "J")
    return Lines("A day less costs 1 % energy", *axes, (Series("front", points), own), levels=levels)


def roofline() -> Lines:
    roof = [(0.1, 0.335), (1.0, 3.35), (10.0, 33.5), (295.0, 989.0), (10_000.0, 989.0)]
    line = Series("bf16", tuple(Point(intensity, rate * 1e12) for intensity, rate in roof))
    axes = Axis("arithmetic intensity", "FLOP/B", log=True), Axis("rate", "FLOP/s", log=True)
    return Lines("Matrix products are limited by computation", *axes, (line,))


def tornado() -> Tornado:
    swings = (
        Swing("system.accelerator.voltage.knee", -0.12, 0.15, "0.6 V", "0.9 V"),
        Swing("system.accelerator.a_name_that_is_much_longer_than_the_room_for_it_left_of_the_bars", 0.05, 0.08),
        Swing("system.facility.cooling.fan_power", -0.02, 0.01),
    )
    return Tornado(
        "The voltage knee moves energy most", swings, "Change at the 5 % and 95 % quantiles", "change of energy"
    )


def intervals() -> Intervals:
    rows = (
        Interval("energy", 26.0 * GWH, 22.0 * GWH, 31.0 * GWH, "J", "26 GWh", "22 to 31"),
        Interval("multiple of the Landauer limit", 3e7, 5e6, 2.3e8, "1", "30 million", "5 to 230"),
    )
    return Intervals("Energy is known within 19 %", rows)


def timeline() -> RankTimeline:
    boxes = [
        Box(
            rank,
            "forward" if turn % 2 == 0 else "backward",
            0.01 * rank + 0.03 * turn,
            0.01 * rank + 0.03 * turn + 0.025,
        )
        for rank in range(8)
        for turn in range(40)
    ]
    return RankTimeline("The mean rank waits 22 % of the time", tuple(boxes), "1F1B")


EXAMPLES: dict[str, AbstractChart] = {
    "stacked": StackedBars(
        "Switching takes 37 %", "J", (energy_bar(HOSTILE), energy_bar("found", 0.9)), "Energy of the run"
    ),
    "one bar": StackedBars(HOSTILE, "J", (energy_bar("own plan"),), axis="energy"),
    "grouped": grouped(),
    "sankey": sankey(),
    "front": front(),
    "roofline": roofline(),
    "tornado": tornado(),
    "intervals": intervals(),
    "timeline": timeline(),
}
