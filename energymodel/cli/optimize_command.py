"""`energymodel optimize`: which plan is best within limits, and what is each limit worth?"""

from energymodel.cli.shell import (
    AsJson,
    Changes,
    Fix,
    Limit,
    Minimize,
    Output,
    Progress,
    ScenarioName,
    Vary,
    check_output,
    deliver,
    guarded,
    interruptible,
    read_scenario,
    verdict,
)


@guarded
def command(
    scenario: ScenarioName,
    minimize: Minimize = None,
    limit: Limit = None,
    vary: Vary = None,
    fix: Fix = None,
    changes: Changes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> int:
    """Find the best plan within limits, and print it beside the scenario's own."""
    check_output(output)
    with Progress(lines=True) as progress:
        given = read_scenario(scenario, changes).with_question(minimize, limit, vary, fix or ())
        progress(f"loading the design search for {given.name} ...")
        with interruptible():
            import jax

            from energymodel.design.optimize import optimize
            from energymodel.report.json_tree import optimum_json
            from energymodel.report.plan_report import failure_line, optimum_report

        with jax.enable_x64(True):
            optimum = optimize(given, progress=progress)
            tree, report = optimum_json(optimum), optimum_report(optimum)
    deliver(tree, report, as_json=as_json, output=output)
    return verdict(optimum.result, failure_line(optimum))
