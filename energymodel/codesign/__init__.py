"""Which model shape and which hardware suit each other best?"""
