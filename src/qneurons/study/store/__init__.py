"""The store: keeps everything recorded of a study through crashes and concurrent writers."""
