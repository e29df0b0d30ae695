from orsay_client import Client

with Client("http://127.0.0.1:8080") as client:
    print(client.environments())
    environment = client.environment("reverse")
    for split in environment.splits():
        tasks = environment.tasks(split.name)
        print(split.name, split.type, len(tasks), tasks[0].spec)
    print(environment.tools("openai"))
    for task in environment.tasks("train"):
        with environment.session(task) as session:
            print(session.messages("anthropic"))
