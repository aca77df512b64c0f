"""What is given, what may be decided, what comes out?"""
