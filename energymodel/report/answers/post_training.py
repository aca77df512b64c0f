"""The answer of `post-train`: whether an iteration fits in memory, and how long its parts take."""

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.cells import Column, Quantity, number, share, words
from energymodel.report.number import sentence
from energymodel.scenarios.pieces import layout_words
from energymodel.sweeps.post_training import WORDS, Iteration, PostTraining
from energymodel.system.outputs import output

FITS = "It fits: training takes {training} of {capacity} per chip ({others} beside the actor), writing {writing}."
ENGINES = (
    "Each of {engines} engines of {chips} chips holds {at_once} of its {all} answers at once, in {share} of the memory."
)
LIMITS = (
    "Constants of the engine are priors (energymodel presets show paged). Rewards by tools or larger models, turns of "
    "agents and padding are not modeled; chips that write draw the power of those that train."
)


def post_training_answer(asked: PostTraining, run: Iteration) -> Answer:
    """An iteration in numbers: memory, time of its parts, rates, energy and money."""
    times = {
        name: Quantity.around(time, half)
        for name, time, half in zip(run.time._fields, run.time, run.halves, strict=True)
        if name in WORDS["titles"] and time > 0.0
    }
    time = Quantity.around(run.time.total, run.halves.total)
    rate = (run.tokens / run.chips / end for end in (time.value, time.high, time.low) if end)
    verdict = Sentence(run.shortfall or FITS, {name: number(size, "B") for name, size in run.memory.items()})
    counts = {"engines": asked.prompts * asked.answers / run.load.sequences, "chips": run.load.chips}
    counts |= {"at_once": run.time.at_once, "all": run.load.sequences}
    numbers = {name: number(round(float(count)), kind="count") for name, count in counts.items()}
    numbers["share"] = share(float(run.load.memory) / run.memory["capacity"])
    parts = {
        words("part"): [WORDS["titles"][name] for name in times],
        Column("time", unit="s"): times.values(),
        Column("share", kind="share", digits="two"): [part.value / run.time.total for part in times.values()],
    }
    per_time = run.chips * run.time.total / float(output(run.outcome, "chip_time"))
    facts = {
        words("fits", "fits in memory"): "no" if run.shortfall else "yes",
        Column("iteration_time", unit="s"): time,
        Column("tokens", unit="token"): run.tokens,
        Column("token_rate_per_chip", "tokens per second and chip", "token/s"): (*rate,),
        **{Column(f"memory_{name}", f"memory per chip, {name}", "B"): size for name, size in run.memory.items()},
        words("layout", "layout of an update"): layout_words(run.scenario.plan.layout),
        Column("money", unit="USD", digits="two"): float(output(run.outcome, "money")) * per_time,
        Column("energy", unit="J", digits="two"): float(output(run.outcome, "energy")) * per_time,
    }
    title = f"An iteration of {WORDS['algorithms'][asked.algorithm]['title']} takes {{time"
    tables = [
        Table.facts("iteration", "An iteration", facts),
        Table.of("iteration_parts", "Parts of an iteration, with 90 % intervals", parts, bars="share"),
    ]
    return Answer.of(
        run.scenario,
        "post-train",
        Sentence(f"{title}:i}}", {"time": number(time, "s")}),
        [verdict, Sentence(ENGINES, numbers)],
        tables,
        [
            Chart(
                "bars",
                Sentence(f"{title}}}", {"time": number(time, "s")}),
                "iteration_parts",
                "part",
                ["time"],
                axis="time",
            )
        ],
        [*map(Sentence, run.assumed), Sentence(LIMITS)],
        result="infeasible" if run.shortfall else "successful",
        message=sentence(verdict) if run.shortfall else "",
    )
