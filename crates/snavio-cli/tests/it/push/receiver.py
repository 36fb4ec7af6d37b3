"""A receiver of pushes built on what others wrote: Standard Webhooks and CloudEvents.

Its secret is the last line of its standard input. It prints its port, then a line of JSON for each request, and takes only what
is signed and, where it is to be a CloudEvent, can be read as one. It verifies as docs/guides/push.md says.
"""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks.webhooks import Webhook

secret = None
printing = threading.Lock()


def tell(document):
    with printing:
        print(json.dumps(document), flush=True)


def read(headers, body):
    event = from_http(HTTPMessage(headers=headers, body=body), JSONFormat())
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    data = event.get_data()
    if isinstance(data, bytes):
        data = {"bytes": base64.b64encode(data).decode()}
    return {"attributes": attributes, "data": data}


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = {"webhook_id": headers.get("webhook-id"), "attempt": headers.get("snavio-attempt")}
        status = 400
        try:
            Webhook(secret).verify(body, headers, json_parse=False)
            told["signed"] = True
            if self.path == "/events":
                told["event"] = read(headers, body)
            else:
                told["body"] = json.loads(body)
            status = 200
        except Exception as error:  # whatever it is, it is told
            told["error"] = f"{type(error).__name__}: {error}"
        tell(told)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
tell({"port": server.server_address[1]})
threading.Thread(target=server.serve_forever, daemon=True).start()
for line in sys.stdin:
    secret = line.strip()
    tell({"secret": True})
