"""The store: a folder that keeps everything recorded of a study through crashes and concurrent writers."""
