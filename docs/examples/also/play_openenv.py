from openenv.core.generic_client import GenericEnvClient

with GenericEnvClient(base_url="http://127.0.0.1:8080/reverse").sync() as env:
    print(env.reset(split="train", index=0).observation["text"])
    result = env.step({"type": "call_tool", "tool_name": "submit", "arguments": {"text": "enots"}})
    print(result.observation["text"], result.reward, result.done)
