"""How many tokens does a loss cost at this batch, and how does the loss fall with time?"""
