"""A run while it trains: what it has used, where it goes, what is wrong, and what to change.

`sources` has records, `run_state` adds them up, `expectation` says what the plan foresaw, `status` compares them,
`forecast` extends them to the end of the run, and `monitor` puts these together for commands and training loops.
"""
