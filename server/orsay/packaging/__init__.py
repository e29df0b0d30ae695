"""Build context of a container image, made from the folder of an environment project.

``project.read`` says what a folder holds, ``wheel.requirement`` what is installed as orsay,
``dockerfile.text`` how the image is built, ``context.read`` and ``context.tar`` what goes into it.
"""
