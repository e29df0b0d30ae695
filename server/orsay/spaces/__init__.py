"""An environment as a Hugging Face Space: its folder, and the way there."""
