"""A page on which a plan follows the sliders: what is computed, drawn and served for it."""
