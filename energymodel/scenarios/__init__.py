"""Scenarios, systems and plans from files, presets, models and training configurations."""
