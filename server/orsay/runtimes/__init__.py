"""Places where environment code runs, behind one contract."""
