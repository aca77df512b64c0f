"""Loss law, critical batch size, batch schedules and the information a model absorbs."""
