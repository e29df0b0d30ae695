"""Arithmetic: word problems, a calculator, and a graded answer."""
