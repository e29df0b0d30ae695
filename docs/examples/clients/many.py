import asyncio

from orsay_client import AsyncClient, Fault, ToolRefused


async def rollout(client: AsyncClient, index: int) -> float | None:
    """The reward, or None when there is none: a fault is not a reward of 0."""
    try:
        async with client.environment("addition").session(split="train", index=index) as session:
            try:
                output = await session.call("answer", {"total": index})
            except ToolRefused as refused:
                print("the environment refused:", refused.message)
                return 0.0
            return output.reward
    except Fault as fault:
        print(fault.fault_class, fault.retryable, fault.message)
        return None


async def main() -> None:
    async with AsyncClient("http://127.0.0.1:8080") as client:
        rewards = await asyncio.gather(*(rollout(client, index) for index in range(100)))
    print(sum(reward or 0.0 for reward in rewards), rewards.count(None))


asyncio.run(main())
