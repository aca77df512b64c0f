"""Training frameworks as data, one file each, and Python for what data cannot say."""
