"""What do measurements say about the constants of a cluster, and how well does the model predict them?"""
