"""The wire: requests in, answers and streams out. Only here are status codes known."""
