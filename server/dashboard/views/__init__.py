"""What each page shows: frozen views whose every field carries a tag, made from a server's folder."""
