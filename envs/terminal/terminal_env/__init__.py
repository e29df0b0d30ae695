"""Terminal: tasks of a shell, made from seeds, and graded where the policy never was."""
