ARG BASE
FROM ${BASE}
COPY tests/support/environments.py /app/environments.py
CMD ["orsay", "serve", "environments.py:Scripted", "environments.py:AsyncScripted", "environments.py:Plain", \
     "environments.py:BadTasks", "--allow-anonymous", "--workers", "1"]
