"""The dashboard: privacy spent beside usefulness gained. Reads a server's folder, writes nothing."""
