"""Kinds of logs of power or energy, one module each; `readers.power_log` chooses between them."""
