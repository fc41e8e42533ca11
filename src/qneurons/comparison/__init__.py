"""Compares activations in a user's own training: trial by trial, into a store, to a page."""

from qneurons.comparison.comparison import compare as compare
from qneurons.comparison.trial import Trial as Trial, only_imports as only_imports
