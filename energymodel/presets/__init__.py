"""Numbers with unit, source and uncertainty: hardware, models, facilities, regions, scenarios."""
