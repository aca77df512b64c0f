"""`energymodel optimize`: which plan is best within limits, and what is each limit worth?"""

from energymodel.cli import shell


@shell.guarded
def command(
    scenario: shell.ScenarioName,
    minimize: shell.Minimize = None,
    limit: shell.Limit = None,
    vary: shell.Vary = None,
    fix: shell.Fix = None,
    tolerance: shell.Tolerance = None,
    cluster: shell.Cluster = None,
    changes: shell.Changes = None,
    as_json: shell.AsJson = False,
    output: shell.Output = None,
) -> int:
    """Find the best plan within limits, and print it beside the scenario's own."""
    shell.check_output(output)
    with shell.Progress(lines=True) as progress:
        given = shell.read_scenario(scenario, changes, cluster).with_question(
            minimize, limit, vary, fix or (), tolerance
        )
        progress(f"loading the design search for {given.name} ...")
        with shell.interruptible():
            import jax

            from energymodel.design.optimize import optimize
            from energymodel.report.json_tree import optimum_json
            from energymodel.report.plan_report import failure_line, optimum_report
            from energymodel.uncertainty.first_order import saving_at_risk

        with jax.enable_x64(True):
            optimum = optimize(given, progress=progress)
            if optimum.success:
                progress("moving the uncertain numbers")
            risk = saving_at_risk(optimum) if optimum.success else None
            tree, report = optimum_json(optimum, risk), optimum_report(optimum, risk)
    shell.deliver(tree, report, as_json=as_json, output=output)
    return shell.verdict(optimum.result, failure_line(optimum))
