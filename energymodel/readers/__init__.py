"""What do the files that a user already has say about a model, a run, its steps and its power?"""
