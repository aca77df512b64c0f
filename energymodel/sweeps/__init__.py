"""What happens over a huge grid of systems and plans?"""
