"""Builders of answers, one module for each kind of question; `__init__.pyi` lists them, and each loads on first use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
