"""What an author writes, and the tables that it is read into once."""
