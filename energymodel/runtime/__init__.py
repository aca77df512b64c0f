"""Compiling, keeping compiled programs, and progress of long work."""
