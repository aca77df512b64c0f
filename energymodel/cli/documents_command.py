"""`energymodel documents`: what do the formulas of the two source documents give for a run?"""

from energymodel.cli import shell
from energymodel.cli.evaluate_command import evaluate_scenario
from energymodel.cli.source import Source


@shell.guarded
def command(source: Source, as_json: shell.AsJson = False, output: shell.JsonOutput = None) -> None:
    """Show each formula of the two source documents: as written, corrected, and what the whole model gives."""
    shell.check_output(output, (".json",))
    with shell.Progress() as progress:
        given, outcome = evaluate_scenario(source, progress)
        import jax

        from energymodel.report.documents_report import documents_json, documents_report, statements
        from energymodel.system.document_symbols import document_symbols

        with jax.enable_x64(True):
            found = statements(given, outcome, document_symbols(given.system, given.plan, outcome))
    tree = {"scenario": given.named_tables, "statements": documents_json(found)}
    shell.deliver(tree, documents_report(found), as_json=as_json, output=output)
