"""The paper's claims as data, and how each is judged."""
