import os

os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = "http://127.0.0.1:8080"
from trl.experimental.openreward import OpenRewardSpec

spec = OpenRewardSpec("http://127.0.0.1:8080")
