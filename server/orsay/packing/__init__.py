"""From the folder of an environment project to what a container image is built from."""
