ARG BASE
FROM ${BASE}
COPY tests/runtimes/worlds.py /app/worlds.py
CMD ["orsay", "serve", "worlds.py:World", "worlds.py:AsyncWorld", "worlds.py:Plain", "worlds.py:BadTasks", \
     "--allow-anonymous", "--workers", "1"]
