"""One module for each kind of training log; `step_log` chooses."""
