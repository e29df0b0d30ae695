"""Build context of a container image, made from the folder of an environment project.

``project.read`` reads the project, ``wheel.requirement`` selects the orsay to install, ``dockerfile.text``
gives the Dockerfile, ``context.read`` and ``context.tar`` select and pack the files.
"""
