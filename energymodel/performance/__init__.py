"""How long does a training step take, does it fit, what is lost to failures?"""
