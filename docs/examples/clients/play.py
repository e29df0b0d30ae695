from orsay_client import Client

with Client("http://127.0.0.1:8080") as client:
    environment = client.environment("reverse")
    with environment.session(split="train", index=0) as session:
        print(session.prompt()[0])
        output = session.call("submit", {"text": "enots"})
        print(output.blocks[0], output.reward, output.finished)
