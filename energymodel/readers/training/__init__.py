"""How does each training framework write down a run?"""
