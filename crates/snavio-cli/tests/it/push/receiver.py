"""A receiver of pushes on third-party packages: Standard Webhooks and CloudEvents.

The last line of its standard input is its secret. It prints its port, then a line of JSON for each request. It
accepts only requests with a valid signature that, on the path `/events`, can be read as CloudEvents. It verifies as
docs/guides/push.md says.
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


def emit(document):
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
        record = {"webhook_id": headers.get("webhook-id"), "attempt": headers.get("snavio-attempt")}
        status = 400
        try:
            Webhook(secret).verify(body, headers, json_parse=False)
            record["signed"] = True
            if self.path == "/events":
                record["event"] = read(headers, body)
            else:
                record["body"] = json.loads(body)
            status = 200
        except Exception as error:  # every error is reported
            record["error"] = f"{type(error).__name__}: {error}"
        emit(record)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
emit({"port": server.server_address[1]})
threading.Thread(target=server.serve_forever, daemon=True).start()
for line in sys.stdin:
    secret = line.strip()
    emit({"secret": True})
