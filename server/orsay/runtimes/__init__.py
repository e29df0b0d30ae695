"""Hosts of environment code, behind one contract."""
