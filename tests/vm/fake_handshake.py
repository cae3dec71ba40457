#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Handshakes that no honest process would do, and some that one would.

fake_handshake.py serve --mode-file FILE [--forward PORT --as NAME]
    A handshake server. Prints "port N", then "request {...}" for each. What it
    does is the word in FILE, read anew each time (default honest). With
    --forward the honest answer is that of the real server at PORT, which is
    called NAME; the request reaches it as if each segment that is asked for
    had another initiator, so that one server can stand for many.

fake_handshake.py ask PORT
    Send each line of standard input as a Connection request, print the reply
    to each, or "closed".
"""
import argparse
import json
import socket
import struct
import sys
import threading
import time

GID = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01"
GIDS = {
    "gid-15": GID[3:],
    "gid-17": GID + ":00",
    "gid-colon": GID + ":",
    "gid-newline": GID + "\n",
    "gid-text": "::ffff:10.9.0.1",
    "gid-letters": GID.replace("0a", "zz"),
    "gid-wide": GID.replace("ff:ff", "1ff:ff"),
    "gid-zero": GID.replace("ff", "00").replace("0a:09:00:01", "00:00:00:00"),
}


def receive(conn, n):
    data = b""
    while len(data) < n:
        piece = conn.recv(n - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def receive_frame(conn):
    size, = struct.unpack("<Q", receive(conn, 8))
    if not 1 <= size <= 1 << 20:
        raise ValueError(f"a frame of {size} bytes")
    body = receive(conn, size)
    return body[0], json.loads(body[1:])


def frame(message, kind=0):
    text = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    return struct.pack("<QB", len(text) + 1, kind) + text


def exchange(port, message):
    with socket.create_connection(("127.0.0.1", port), 10) as conn:
        conn.settimeout(30)
        conn.sendall(frame(message))
        return receive_frame(conn)[1]


class Liar:
    def __init__(self, mode_file, forward, name):
        self.mode_file, self.forward, self.name = mode_file, forward, name
        self.lock = threading.Lock()

    def mode(self):
        try:
            with open(self.mode_file) as f:
                return f.read().strip() or "honest"
        except FileNotFoundError:
            return "honest"

    def say(self, text):
        with self.lock:
            print(text, flush=True)

    def honest(self, request):
        """A reply that passes every check, of the real server if any."""
        if not self.forward:
            return {"local_gid": GID, "local_lid": 0,
                    "local_nic_path": request["peer_nic_path"],
                    "peer_nic_path": request["local_nic_path"],
                    "payload": "", "reply_msg": "",
                    "qp_num": [0xfff000 + i
                               for i in range(len(request["qp_num"]))]}
        segment, _, device = request["peer_nic_path"].partition("@")
        asked = dict(request)
        asked["peer_nic_path"] = f"{self.name}@{device}"
        asked["local_nic_path"] = f"{segment}-{request['local_nic_path']}"
        reply = exchange(self.forward, asked)
        reply["local_nic_path"] = request["peer_nic_path"]
        reply["peer_nic_path"] = request["local_nic_path"]
        return reply

    def reply(self, mode, request):
        """The message of MODE, or bytes that are none."""
        if mode in ("half", "late-half", "trickle", "kind"):
            return frame(self.honest(request), 1 if mode == "kind" else 0)
        if mode == "null":
            return None
        if mode == "array":
            return []
        if mode == "empty-object":
            return {}
        if mode == "empty-strings":
            return {"local_nic_path": "", "peer_nic_path": "", "local_gid": "",
                    "local_lid": 0, "qp_num": [], "reply_msg": ""}
        reply = self.honest(request)
        own, peer = reply["local_nic_path"], reply["peer_nic_path"]
        if mode == "wrong-device":
            reply["local_nic_path"] = own.partition("@")[0] + "@nobody0"
        elif mode == "wrong-server":
            reply["local_nic_path"] = "x" + own
        elif mode == "wrong-peer":
            reply["peer_nic_path"] = peer + "x"
        elif mode == "swapped":
            reply["local_nic_path"], reply["peer_nic_path"] = peer, own
        elif mode in ("fewer-qps", "more-qps", "no-qps"):
            n = {"fewer-qps": 1, "no-qps": 0}.get(
                mode, len(reply["qp_num"]) + 3)
            reply["qp_num"] = [0xfff000 + i for i in range(n)]
        elif mode.startswith("wants-qps-"):
            n = int(mode.rpartition("-")[2])
            if len(request["qp_num"]) != n:
                reply["qp_num"] = [0xfff000 + i for i in range(n)]
                reply["reply_msg"] = ("QP count mismatch, check "
                                      "MC_MAX_EP_PER_CTX on both sides")
        elif mode == "big-qp":
            reply["qp_num"] = [1 << 24 for _ in reply["qp_num"]]
        elif mode == "text-qps":
            reply["qp_num"] = "905,906"
        elif mode == "number-path":
            reply["local_nic_path"] = 7
        elif mode == "reject":
            reply["reply_msg"] = "Peer nic not found in that server"
        elif mode == "reject-long":
            reply["reply_msg"] = "\x1b[31mno\n\x00" + "n" * 65536
        elif mode in GIDS:
            reply["local_gid"] = GIDS[mode]
        return reply

    def send(self, conn, mode, reply):
        if mode == "silence":
            time.sleep(60)
        elif mode == "huge":
            conn.sendall(struct.pack("<QB", 1 << 62, 0) + b"{")
            time.sleep(60)
        elif mode == "http":
            conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif mode == "not-json":
            conn.sendall(struct.pack("<QB", 9, 0) + b"{\"qp_num")
        elif mode == "half":
            conn.sendall(reply[:len(reply) // 2])
        elif mode == "late-half":
            conn.sendall(reply[:len(reply) // 2])
            time.sleep(60)
        elif mode == "trickle":
            for byte in reply:
                conn.sendall(bytes([byte]))
                time.sleep(0.5)
        elif isinstance(reply, bytes):
            conn.sendall(reply)
        else:
            conn.sendall(frame(reply))

    def serve(self, conn):
        mode = self.mode()
        with conn:
            try:
                conn.settimeout(30)
                if mode == "close":
                    return
                kind, request = receive_frame(conn)
                self.say(f"request {json.dumps(request)}")
                if kind == 0:
                    self.send(conn, mode, self.reply(mode, request))
            except (OSError, EOFError, ValueError, KeyError) as e:
                self.say(f"failed {e!r}")


def serve(args):
    liar = Liar(args.mode_file, args.forward, args.name)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        liar.say(f"port {listener.getsockname()[1]}")
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=liar.serve, args=(conn,),
                             daemon=True).start()


def ask(args):
    for line in sys.stdin:
        try:
            reply = json.dumps(exchange(args.port, json.loads(line)))
        except (EOFError, ConnectionError):
            reply = "closed"
        print(reply, flush=True)


def main():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("serve")
    verb.add_argument("--mode-file", required=True)
    verb.add_argument("--forward", type=int, default=0)
    verb.add_argument("--as", dest="name", default="")
    verb.set_defaults(run=serve)
    verb = verbs.add_parser("ask")
    verb.add_argument("port", type=int)
    verb.set_defaults(run=ask)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
