"""Is it private? What an attacker learns of single records from what was released."""
