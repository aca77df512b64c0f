"""One module for each kind of training log: what do its lines say?"""
