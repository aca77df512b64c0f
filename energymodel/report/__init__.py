"""How do I look at it?"""
