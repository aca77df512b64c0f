"""Readers of the configurations and commands of training frameworks."""
