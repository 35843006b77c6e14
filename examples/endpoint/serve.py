"""Serves a model that tells colours, and runs a command that gates it: `python serve.py pytest`.

The server speaks as much of the protocol of OpenAI as a gate needs. It stands for vLLM, SGLang or a cloud API.
"""

import base64
import io
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

COLOURS = ("red", "green", "blue")


def answer(content: list[dict[str, Any]]) -> str:
    """Returns the letter of the option that names the strongest colour of the picture; A without a picture."""
    pictures = [part["image_url"]["url"].partition(",")[2] for part in content if part["type"] == "image_url"]
    text = " ".join(part["text"] for part in content if part["type"] == "text")
    options: dict[str, str] = {name: letter for letter, name in re.findall(r"\b([A-Z])[.:)] *(\w+)", text)}
    if not pictures or not options:
        return "A"
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[0]))).convert("RGB"), dtype=float)
    return options[COLOURS[int(pixels.mean(axis=(0, 1)).argmax())]]


class Handler(BaseHTTPRequestHandler):
    """Answers questions and lists the one model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Lists the models."""
        self.send({"object": "list", "data": [{"id": "colours", "object": "model", "created": 1, "owned_by": "serve.py"}]})

    def do_POST(self) -> None:
        """Answers a question."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": answer(body["messages"][-1]["content"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}
        self.send({"id": "1", "object": "chat.completion", "created": 1, "model": "colours", "choices": [choice], "usage": usage})

    def send(self, reply: dict[str, Any]) -> None:
        """Sends JSON."""
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        model = f"--vlm=openai:http://127.0.0.1:{server.server_address[1]}/v1#colours@1"
        code = subprocess.run([*sys.argv[1:], model], check=False).returncode
        server.shutdown()
    sys.exit(code)
