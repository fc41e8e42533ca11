"""Stochastic activations built on Jackson's q-derivative, as drop-in PyTorch modules."""
