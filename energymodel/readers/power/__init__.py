"""What does each kind of power or energy log say? One module per kind; `readers.power_log` chooses between them."""
