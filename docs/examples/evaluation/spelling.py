from orsay_eval import Evaluation

SPELLING = Evaluation("reverse", split="train", tasks=2, k=4, success=1.0, max_turns=8)
