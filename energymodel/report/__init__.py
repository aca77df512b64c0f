"""Answers in numbers, and their forms: terminal text, pages, files, figures and notebooks."""
