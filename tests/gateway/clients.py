"""Asks a gateway with the real client libraries: clients.py BASE_URL MODEL KEY WHAT. Prints one JSON object."""

import json
import sys

import anthropic
import openai

base, model, key, what = sys.argv[1:5]
hello = [{"role": "user", "content": "hello"}]
ours = openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0)
theirs = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0)


def chat():
    answer = ours.chat.completions.create(model=model, messages=hello, max_tokens=8)
    return {"text": answer.choices[0].message.content, "object": answer.object}


def stream():
    pieces = ours.chat.completions.create(model=model, messages=hello, max_tokens=8, stream=True)
    texts = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    return {"text": "".join(texts), "pieces": len(texts)}


def completion():
    return {"text": ours.completions.create(model=model, prompt="hello", max_tokens=8).choices[0].text}


def models():
    return {"ids": [entry.id for entry in ours.models.list()], "status": ours.models.retrieve(model).status}


def message():
    answer = theirs.messages.create(model=model, messages=hello, max_tokens=8)
    return {"text": answer.content[0].text, "type": answer.type}


def message_stream():
    with theirs.messages.stream(model=model, messages=hello, max_tokens=8) as pieces:
        return {"text": "".join(pieces.text_stream)}


try:
    print(json.dumps(globals()[what]()))
except (openai.APIError, anthropic.APIError) as error:
    told = {"error": type(error).__name__, "message": str(error), "code": getattr(error, "code", None)}
    told["status"] = getattr(error, "status_code", None)
    print(json.dumps(told))
