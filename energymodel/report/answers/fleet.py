"""The answers of `fleet`: groups of unlike devices that train one model, and the power of a site, divided."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from energymodel.report.answer import Answer, Chart, Sentence, Table
from energymodel.report.answers.run_tables import Run, outcome_table
from energymodel.report.cells import Column, declared, number, share, words
from energymodel.report.number import plain
from energymodel.scenarios.scenario import Scenario
from energymodel.search.fleet import Fleet, FleetOptimum
from energymodel.search.site import SitePower, SiteSplit
from energymodel.system.fleet import FleetOutcome

_SHARED = {"chips": "chips", "token_share": "tokens", "energy_share": "energy"}
_NOTHING = 5e-4  # percent for a percent: a limit that does not bind
_WAITING = (
    "Whoever ends a step early waits for the others; gradients are exchanged over the slowest network. Limits of "
    "memory and temperature hold for each group, those of the building for all together."
)
_PARTS = {"network": "links", "delivery_loss": "delivery"}
_STATIC = (
    "A static division: every part may draw its share at any moment. The next watt brings the same throughput wherever "
    "it goes. Throughput is that of kernels, memory and links together, without bubbles, failures and fixed times; the "
    "widths of memory and links are powered shares."
)


def fleet_answer(fleet: Fleet, optimum: FleetOptimum | None = None) -> Answer:
    """Groups, what they do together beside other runs, and what each limit of a search is worth.

    Beside stand even shares of a batch, the first group alone, and after a search the fleet with its own clocks.
    """
    if optimum is None:
        outcome, alone = fleet.evaluate(), fleet.evaluate_alone()
        runs = {"fleet": outcome.job, "even shares": fleet.evaluate(np.ones(len(fleet.groups))).job}
    else:
        fleet, outcome, alone = optimum.fleet, optimum.outcome, optimum.alone
        runs = {"found": outcome.job, "own clocks": optimum.own.job, "even shares": optimum.even.job}
    runs[f"{fleet.groups[0].name} alone"] = alone
    groups, main = groups_table(fleet, outcome), fleet.main
    together = outcome_table({name: Run(main.plan, run) for name, run in runs.items()}, "rows")
    sentences = [
        Sentence("The batch of all groups is {batch}.", {"batch": number(np.ravel(main.plan.batch)[0], "token")})
    ]
    tables = [groups, dataclasses.replace(together, title="Together")]
    if optimum is not None and optimum.prices:
        for name, price in optimum.prices.items():
            brings = f"{{price}} less {optimum.minimize}" if price > _NOTHING else "nothing"
            text, worth = f"A limit of {name} higher by 1 % brings {brings}.", {"price": share(price / 100.0)}
            sentences.append(Sentence(text, worth))
        rows = [[name, price, optimum.limits.get(name)] for name, price in optimum.prices.items()]
        columns = [words("limit"), Column("elasticity"), Column("value", "value", "")]
        tables.append(Table("prices", "Shadow prices of the limits", columns, rows, level="data"))
    chips, *shares = ([groups.number(name, row)[1].value for row in range(len(groups.rows))] for name in _SHARED)
    rows = [*zip(groups.labels, [count / sum(chips) for count in chips], *shares, strict=True)]
    columns = [words("group"), *(Column(name, kind="share") for name in _SHARED.values())]
    tables.append(Table("shares", "Shares of the groups", columns, rows, level="data"))
    title = Sentence("What each group has, does and takes")
    message = optimum.message if optimum is not None and not optimum.success else ""
    return dataclasses.replace(
        Answer.of(main, "fleet", Sentence(f"{len(fleet.groups)} groups train one model"), sentences, tables),
        charts=[Chart("stack", title, "shares", "group", [*_SHARED.values()], axis="share")],
        notes=[Sentence(_WAITING)],
        inputs=fleet.named_tables,
        rows="groups",
        result="infeasible" if message else "successful",
        message=message,
    )


def groups_table(fleet: Fleet, outcome: FleetOutcome) -> Table:
    """What each group has, does and takes."""
    chips = np.array([float(group.scenario.plan.chips) for group in fleet.groups])
    energy = chips * [np.asarray(own.energy.total) for own in outcome.groups]
    step = outcome.job.step_time
    idle = 1.0 - (np.asarray(outcome.work_time) + np.asarray(step.data)) / np.asarray(step.total)
    replicas, shares = np.array([group.replicas for group in fleet.groups]), np.asarray(outcome.share)
    microbatches, slacks = (
        fleet.microbatches * replicas.sum(),
        [min(vars(own.slack).values()) for own in outcome.groups],
    )
    counts = np.stack([chips, replicas, microbatches * shares / replicas, shares, energy / energy.sum()], axis=1)
    rows = [
        [*of, own.clock, own.power_busy, max(0.0, waits), own.memory_per_chip, own.temperature, slack]
        for of, own, waits, slack in zip(counts.tolist(), outcome.groups, idle.tolist(), slacks, strict=True)
    ]
    names = [group.name for group in fleet.groups]
    return Table("groups", "Groups", declared("fleet_groups"), rows, tall=True, labels=names)


def site_answer(scenario: Scenario, splits: Sequence[SiteSplit]) -> Answer:
    """A column for each limit: what it brings, the parts of the power, and the settings."""
    labels = [plain(float(of.limit), "W") for of in splits]
    rows = [[of.throughput, of.price, of.power.total, *of.power, *of.choice, of.limit] for of in splits]
    table = Table("site_power", "The site's power, divided", declared("site"), rows, tall=True, labels=labels)
    parts = {words("part"): [_PARTS.get(name, name) for name in SitePower._fields]}
    parts |= {Column(label, label, "W"): of.power for label, of in zip(labels, splits, strict=True)}
    of_limits = Table.of("parts", "Parts of the power", parts, level="data")
    title, subtitle = Sentence("Division of highest throughput"), "Power of the site at each limit"
    return Answer.of(
        scenario,
        "fleet",
        Sentence("The power of the site for the most tokens per second"),
        [],
        [table, of_limits],
        charts=[Chart("stack", title, "parts", "part", labels, subtitle, axis="power")],
        notes=[Sentence(_STATIC)],
        rows="site_power",
    )
