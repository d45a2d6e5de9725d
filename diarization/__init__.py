"""Who spoke when; empty until it is right."""
