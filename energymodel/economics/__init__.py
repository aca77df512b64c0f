"""What does a run cost in money and carbon?"""
