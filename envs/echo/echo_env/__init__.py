"""Echo: repeat the word to win."""
