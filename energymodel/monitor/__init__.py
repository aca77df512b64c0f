"""A run while it trains: what it has used, where it goes, what is wrong, and what to change.

`run_state` adds up records, `expectation` says what the plan foresaw, `findings` compares them, `forecast` extends them
to the end of the run, and `monitor` puts these together for the command line and for a training loop.
"""
