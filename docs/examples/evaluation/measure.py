from orsay_eval import ChatModel, evaluate
from spelling import SPELLING

model = ChatModel("Qwen/Qwen3-8B", base_url="http://127.0.0.1:8000/v1", temperature=0.7)
report = evaluate(SPELLING, "http://127.0.0.1:8080", model, output="evaluations/spelling.json", resume=True)

mean = report.summary.mean_reward
if mean is not None:
    print(f"mean reward {mean.mean:.2f}, 95% interval {mean.low} to {mean.high}")
print({entry.k: round(entry.mean, 2) for entry in report.summary.pass_at_k})
print(report.summary.faults)
