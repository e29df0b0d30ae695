"""Runtimes: hosts of environment code, behind one interface (``base``)."""
