"""Kinds of training logs, described by `lines.toml` or a module each."""
