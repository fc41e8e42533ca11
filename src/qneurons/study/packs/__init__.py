"""Packs: many runs trained as one network on one device."""
