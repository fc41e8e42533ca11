"""Execution: trains what a store lacks, in this process or on a Ray cluster."""
