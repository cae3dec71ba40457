#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A store that speaks etcd's JSON gateway and lies on demand.

    fake_etcd.py [--mode-file FILE] [--port N] [--tls CERT KEY]

Prints "port N", then a line a request: method, path, status. FILE is read anew
for every request and holds words:

    path=/v3beta     the gateway is there and nowhere else
    numbers          integers as numbers, not as strings
    nopad            base64 without padding
    user=NAME:PASS   credentials are wanted
    expire=SECONDS   tokens die after that: 401 with code 16
    refuse=HOW       what a bad token gets: 401 (default), hangup, old
    never            every token is bad
    html500 redirect notjson null hangup half garbage huge
                     what every request gets
    slow=SECONDS     before every answer
    cut              streams end after an event
    cancel           watches are cancelled at once
    mute             watches are never answered
"""
import argparse
import base64
import http.server
import json
import os
import re
import secrets
import ssl
import sys
import threading
import time

PREFIX = re.compile(r"^(/v3(?:alpha|beta)?)/(.*)$")


def unb64(text):
    return base64.b64decode(text + "=" * (-len(text) % 4))


class Store:
    def __init__(self):
        self.lock = threading.Condition()
        self.data = {}
        self.events = []
        self.tokens = {}
        self.leases = {}

    def put(self, key, value):
        with self.lock:
            self.data[key] = value
            self.events.append(("PUT", key, value))
            self.lock.notify_all()

    def delete(self, key):
        with self.lock:
            gone = self.data.pop(key, None) is not None
            if gone:
                self.events.append(("DELETE", key, b""))
                self.lock.notify_all()
            return int(gone)


class Error(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code = status, code


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    # ---- forms ----

    def log_message(self, *args):
        pass

    def note(self, status):
        print(self.command, self.path, status, flush=True)

    def number(self, value):
        return value if "numbers" in self.mode else str(value)

    def b64(self, data):
        text = base64.b64encode(data).decode()
        return text.rstrip("=") if "nopad" in self.mode else text

    def answer(self, status, body, kind="application/json", headers=()):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        self.note(status)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        self.note("hangup")
        self.close_connection = True

    def read_mode(self):
        words = []
        if self.server.mode_file and os.path.exists(self.server.mode_file):
            with open(self.server.mode_file) as f:
                words = f.read().split()
        self.mode = dict((w.split("=", 1) + [""])[:2] for w in words)

    # ---- requests ----

    def do_GET(self):
        self.read_mode()
        self.answer(404, "404 page not found\n", "text/plain")

    def do_POST(self):
        self.read_mode()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "slow" in self.mode:
            time.sleep(float(self.mode["slow"]))
        if self.lie():
            return
        match = PREFIX.match(self.path)
        if not match or match.group(1) != self.mode.get("path", "/v3"):
            self.answer(404, "404 page not found\n", "text/plain")
            return
        method = match.group(2)
        try:
            if method != "auth/authenticate" and not self.is_allowed():
                return
            self.dispatch(method, json.loads(body))
        except Error as e:
            self.answer(e.status, {"error": str(e), "message": str(e),
                                   "code": e.code})

    def lie(self):
        if "html500" in self.mode:
            self.answer(500, "<html><body>oops</body></html>", "text/html")
        elif "redirect" in self.mode:
            self.answer(302, "", "text/html",
                        [("Location", self.mode["redirect"])])
        elif "notjson" in self.mode:
            self.answer(200, "metadata not found")
        elif "null" in self.mode:
            self.answer(200, "null")
        elif "hangup" in self.mode:
            self.hang_up()
        elif "garbage" in self.mode:
            self.note("garbage")
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.close_connection = True
        elif "half" in self.mode:
            self.note("half")
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
                             b"{\"kvs\":[")
            self.close_connection = True
        elif "huge" in self.mode:
            self.huge()
        else:
            return False
        return True

    def huge(self):
        """A reply that never ends."""
        self.note("huge")
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(b" " * 1048576)
        except OSError:
            pass

    def is_allowed(self):
        if "user" not in self.mode:
            return True
        token = self.headers.get("Authorization", "")
        if not token:
            raise Error(400, 3, "etcdserver: user name is empty")
        born = self.server.store.tokens.get(token)
        age = time.monotonic() - born if born is not None else 1e9
        limit = float(self.mode.get("expire", 1e8))
        if "never" not in self.mode and age < limit:
            return True
        how = self.mode.get("refuse", "401")
        if how == "hangup":
            self.hang_up()
            return False
        if how == "old":
            raise Error(500, 2, "auth: revision in header is old")
        raise Error(401, 16, "etcdserver: invalid auth token")

    def dispatch(self, method, body):
        name = "do_" + method.replace("/", "_")
        if not hasattr(self, name):
            raise Error(501, 12, "unknown method " + method)
        getattr(self, name)(body)

    def header_part(self):
        return {"revision": self.number(7), "raft_term": self.number(2)}

    # ---- methods ----

    def do_auth_authenticate(self, body):
        if "user" not in self.mode:
            raise Error(412, 9, "etcdserver: authentication is not enabled")
        if body["name"] + ":" + body["password"] != self.mode["user"]:
            raise Error(400, 3, "etcdserver: authentication failed, invalid "
                                "user ID or password")
        token = secrets.token_urlsafe(12) + ".7"
        self.server.store.tokens[token] = time.monotonic()
        self.answer(200, {"header": self.header_part(), "token": token})

    def range(self, body):
        store = self.server.store
        first = unb64(body["key"])
        stop = unb64(body["range_end"]) if "range_end" in body else None
        limit = int(body.get("limit", 0))
        with store.lock:
            keys = sorted(k for k in store.data
                          if (k == first if stop is None
                              else first <= k < stop))
            kvs = []
            for key in keys[:limit or None]:
                kv = {"key": self.b64(key), "mod_revision": self.number(7)}
                if not body.get("keys_only"):
                    kv["value"] = self.b64(store.data[key])
                kvs.append(kv)
        reply = {"header": self.header_part()}
        if keys:
            reply["count"] = self.number(len(keys))
        if kvs and not body.get("count_only"):
            reply["kvs"] = kvs
        if limit and len(keys) > limit:
            reply["more"] = True
        return reply

    def do_kv_range(self, body):
        self.answer(200, self.range(body))

    def do_kv_txn(self, body):
        answers = [{"response_range": self.range(op["request_range"])}
                   for op in body.get("success", [])]
        self.answer(200, {"header": self.header_part(), "succeeded": True,
                          "responses": answers})

    def do_kv_put(self, body):
        self.server.store.put(unb64(body["key"]), unb64(body["value"]))
        self.answer(200, {"header": self.header_part()})

    def do_kv_deleterange(self, body):
        n = self.server.store.delete(unb64(body["key"]))
        self.answer(200, {"header": self.header_part(),
                          "deleted": self.number(n)})

    def do_lease_grant(self, body):
        lease = (1 << 60) + 1 + len(self.server.store.leases)
        self.server.store.leases[lease] = True
        self.answer(200, {"ID": self.number(lease),
                          "TTL": self.number(int(body["TTL"]))})

    def do_lease_keepalive(self, body):
        lease = int(body["ID"])
        result = {"ID": self.number(lease)}
        if lease in self.server.store.leases:
            result["TTL"] = self.number(5)
        self.answer(200, {"result": result})

    def do_lease_revoke(self, body):
        if not self.server.store.leases.pop(int(body["ID"]), None):
            raise Error(404, 5, "etcdserver: requested lease not found")
        self.answer(200, {"header": self.header_part()})

    def chunk(self, value):
        line = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def do_watch(self, body):
        store = self.server.store
        want = body["create_request"]
        first, stop = unb64(want["key"]), unb64(want["range_end"])
        self.note(200)
        self.close_connection = True
        if "mute" in self.mode:
            time.sleep(30)
            return
        at = len(store.events)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        created = {"header": self.header_part(), "created": True}
        if "cancel" in self.mode:
            created.update(canceled=True, cancel_reason="no watches today")
        try:
            self.chunk({"result": created})
            while "cancel" not in self.mode:
                at = self.send_events(at, first, stop)
            self.wfile.write(b"0\r\n\r\n")
        except StopIteration:
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass

    def send_events(self, at, first, stop):
        store = self.server.store
        with store.lock:
            if at == len(store.events):
                store.lock.wait(0.2)
            new = store.events[at:]
        for kind, key, value in new:
            if not first <= key < stop:
                continue
            event = {"kv": {"key": self.b64(key)}}
            if kind == "DELETE":
                event["type"] = kind
            else:
                event["kv"]["value"] = self.b64(value)
            self.chunk({"result": {"header": self.header_part(),
                                   "events": [event]}})
            if "cut" in self.mode:
                raise StopIteration
        return at + len(new)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, address)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode-file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs=2)
    args = parser.parse_args()
    server = Server(("127.0.0.1", args.port), Handler)
    if args.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*args.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.mode_file = args.mode_file
    server.store = Store()
    print("port", server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
