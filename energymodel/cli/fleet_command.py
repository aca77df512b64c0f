"""`energymodel fleet`: groups of unlike devices that train one model, and with --site the power of one, divided."""

from typing import Annotated

import typer

from energymodel.cli import shell
from energymodel.cli.delivery import Delivery
from energymodel.cli.source import Source, scenario_source
from energymodel.errors import InputError

Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help='Further devices, such as "a100-sxm4-80gb 1024"; repeatable.'),
]
Site = Annotated[
    bool, typer.Option("--site", help="Divide the power of one group's site over compute, memory, links and cooling.")
]
Power = Annotated[
    list[str] | None,
    typer.Option("--power", metavar="POWER", help='Of --site: a limit of all of it, such as "25 MW"; repeatable.'),
]


@shell.guarded
def command(
    source: Source,
    show: Delivery,
    group: Groups = None,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    site: Site = False,
    power: Power = None,
) -> int:
    """Evaluate unlike devices that train one model together.

    With --minimize, choose clocks and batch. With --site, divide the power of the site of one group for the most
    tokens per second.

    Example: energymodel fleet olmo-2-13b-h100 --group "h100-sxm 512" --group "a100-sxm4-80gb 512"
    """
    show.check()
    if site:
        for name, value in (("group", group), ("minimize", minimize), ("limit", limit)):
            if value:
                raise InputError(f"{name}: a site has one group, whose tokens per second are highest. Leave it out.")
    elif power:
        raise InputError(f"power: {power[0]} is that of a site. Add --site, or leave it out.")
    elif limit and not minimize:
        raise InputError("fleet: a limit is for a search. Say what to --minimize, such as energy.")
    elif source.scenario is None or source.model or source.training:
        raise InputError("fleet: groups belong to a SCENARIO. Give its name or file, without --model or --training.")
    with shell.Progress(lines=not site) as progress:
        progress("loading JAX ...")
        from energymodel.report.answers.fleet import fleet_answer, site_answer
        from energymodel.search.fleet import load_fleet, optimize_fleet
        from energymodel.search.site import divide_site_power

        if site or source.scenario is None:
            scenario = source.read()
            progress("dividing the power ...")
            answer = site_answer(scenario, divide_site_power(scenario, power or []))
        else:
            fleet = load_fleet(scenario_source(source.scenario), group or (), source.changes or (), source.cluster)
            progress("optimizing the clocks of the groups ..." if minimize else "evaluating the groups ...")
            answer = fleet_answer(fleet, optimize_fleet(fleet, minimize, limit) if minimize else None)
    return show.deliver(answer)
