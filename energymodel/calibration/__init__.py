"""Constants of a system fitted to measurements, and step times predicted for tables of layouts."""
