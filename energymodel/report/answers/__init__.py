"""Builders of answers: a module for each command makes an `Answer` of its result."""
