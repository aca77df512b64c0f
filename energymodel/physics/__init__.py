"""Power and temperature of a chip, power delivery and cooling of the facility, and physical limits."""
