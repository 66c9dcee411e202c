"""What silo and server must agree on: queries, releases, accounting, data, errors."""
