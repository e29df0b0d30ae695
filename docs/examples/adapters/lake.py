from orsay.adapters import gymnasium_environment

Lake = gymnasium_environment(
    "FrozenLake-v1",
    is_slippery=False,
    render="ansi",
    actions=["left", "down", "right", "up"],
    prompt="Walk from S to G and keep off the holes, H. You stand where the brackets are.",
    name="lake",
    train_tasks=500,
)
