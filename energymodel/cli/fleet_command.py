"""`energymodel fleet`: groups of unlike devices that train one model, and with --site the power of one, divided."""

from typing import Annotated

import typer

from energymodel.cli import shell
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
    group: Groups = None,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    site: Site = False,
    power: Power = None,
    as_json: shell.AsJson = False,
    plot: shell.Plot = None,
    output: shell.TableOutput = None,
) -> int:
    """Evaluate unlike devices that train one model together.

    With --minimize, choose clocks and batch. With --site, divide the power of the site of one group for the most
    tokens per second.

    Example: energymodel fleet olmo-2-13b-h100 --group "h100-sxm 512" --group "a100-sxm4-80gb 512"
    """
    shell.check_outputs(output, plot)
    if site:
        for name, value in (("group", group), ("minimize", minimize), ("limit", limit)):
            if value:
                raise InputError(f"{name}: a site has one group, whose tokens per second are highest. Leave it out.")
        return _divide_site(source, power or [], as_json, plot, output)
    if power:
        raise InputError(f"power: {power[0]} is that of a site. Add --site, or leave it out.")
    if limit and not minimize:
        raise InputError("fleet: a limit is for a search. Say what to --minimize, such as energy.")
    if source.scenario is None or source.model or source.training:
        raise InputError("fleet: groups belong to a SCENARIO. Give its name or file, without --model or --training.")
    with shell.Progress(lines=True) as progress:
        progress("loading JAX ...")
        from energymodel.report import fleet_report
        from energymodel.search.fleet import load_fleet
        from energymodel.search.fleet_search import optimize_fleet

        fleet = load_fleet(scenario_source(source.scenario), group or (), source.changes or (), source.cluster)
        if minimize:
            progress("optimizing the clocks of the groups ...")
            answer = fleet_report.of_search(optimize_fleet(fleet, minimize, limit))
        else:
            progress("evaluating the groups ...")
            answer = fleet_report.as_planned(fleet)
    shell.deliver(
        {"scenario": fleet.named_tables, **fleet_report.fleet_json(answer)},
        fleet_report.fleet_report(answer),
        as_json=as_json,
        output=output,
        rows=lambda: fleet_report.fleet_csv(answer),
        plot=plot,
        figure=lambda kind: fleet_report.fleet_figure(answer, kind),
    )
    if answer.optimum is None or answer.optimum.success:
        return shell.TRUSTED
    return shell.fail(answer.optimum.message, shell.NOT_TRUSTED, "infeasible")


def _divide_site(source: Source, power: list[str], as_json: bool, plot: shell.Plot, output: shell.TableOutput) -> int:
    with shell.Progress() as progress:
        progress("loading JAX ...")
        from energymodel.report import site_power_report
        from energymodel.search.site import divide_site_power

        scenario = source.read()
        progress("dividing the power ...")
        divided = divide_site_power(scenario, power)
    shell.deliver(
        {"scenario": scenario.named_tables, "site_power": site_power_report.site_power_rows(divided)},
        site_power_report.site_power_report(scenario, divided),
        as_json=as_json,
        output=output,
        rows=lambda: site_power_report.site_power_csv(divided),
        plot=plot,
        figure=lambda kind: site_power_report.site_power_figure(divided, kind),
    )
    return shell.TRUSTED
