from orsay_trl import EnvironmentSpec
from spelling import SPELLING

spec = EnvironmentSpec("http://127.0.0.1:8080", num_tasks=2, **SPELLING.spec_arguments())
print(len(spec.train_dataset), len(spec.eval_dataset))
