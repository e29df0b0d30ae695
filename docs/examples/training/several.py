from orsay_trl import EnvironmentSpec

guess = EnvironmentSpec("http://127.0.0.1:8080", env_name="GuessEnvironment", num_tasks=90)
echo = EnvironmentSpec("http://127.0.0.1:8080", env_name="EchoEnvironment")
mixture = EnvironmentSpec.combine(guess, echo, names=["guess", "echo"], weights=[3, 1])
