"""What other libraries need; each file is imported by whoever has that library."""
