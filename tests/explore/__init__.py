"""Whole worlds, played from a seed: several processes, everything that can go wrong, and a ledger of every record."""
