"""What teachers in silos and the student on the server share: how they see records, and how inputs travel."""
