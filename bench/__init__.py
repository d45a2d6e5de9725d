"""What measures: every command prints its hardware, versions, data, timing scope and three runs."""
