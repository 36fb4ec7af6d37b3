"""Sends events with the public CloudEvents package, signed by the public Standard Webhooks library where a secret is given.

Standard input is a JSON object: url, token, mode, events (each with attributes and data, or data_base64) and perhaps secret and
webhook_id. Prints status and body of the answer as a JSON array.
"""

import base64
import http.client
import json
import sys
from datetime import datetime, timezone
from urllib.parse import urlsplit

from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook


def event(given):
    attributes = dict(given["attributes"])
    if "time" in attributes:
        attributes["time"] = datetime.fromisoformat(attributes["time"].replace("Z", "+00:00"))
    data = base64.b64decode(given["data_base64"]) if "data_base64" in given else given.get("data")
    return CloudEvent(attributes=attributes, data=data)


def message(mode, events):
    if mode == "binary":
        return to_binary_event(events[0])
    if mode == "structured":
        return to_structured_event(events[0])
    bodies = b",".join(to_structured_event(it).body for it in events)
    return HTTPMessage({"content-type": "application/cloudevents-batch+json"}, b"[" + bodies + b"]")


asked = json.load(sys.stdin)
sent = message(asked["mode"], [event(it) for it in asked["events"]])
headers = {**sent.headers, "authorization": "Bearer " + asked["token"]}
if "secret" in asked:
    at = datetime.now(tz=timezone.utc)
    signature = Webhook(asked["secret"]).sign(asked["webhook_id"], at, sent.body.decode())
    headers["webhook-id"] = asked["webhook_id"]
    headers["webhook-timestamp"] = str(int(at.timestamp()))
    headers["webhook-signature"] = signature
url = urlsplit(asked["url"])
connection = http.client.HTTPConnection(url.netloc)
path = "/v1/events/batch" if asked["mode"] == "batch" else "/v1/events"
connection.request("POST", path, body=sent.body, headers=headers)
answer = connection.getresponse()
json.dump([answer.status, json.loads(answer.read())], sys.stdout)
