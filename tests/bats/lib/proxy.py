#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A TCP proxy that misbehaves on demand.

Prints "port N", and "request METHOD PATH" for each HTTP request that passes.
What it does is the content of --mode-file, looked at before each piece is
passed on:

  pass      honest (also without a file)
  stall     passes nothing on, in either direction; goes on after "pass"
  drop      resets every connection, old and new
  cut       resets a connection after half of the next piece from the server
  delay-MS  waits before each piece
"""
import argparse
import os
import re
import socket
import struct
import threading
import time

REQUEST = re.compile(rb"^(GET|POST|PUT|DELETE) (\S+) HTTP/1", re.M)


def reset(*conns):
    for c in conns:
        try:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         struct.pack("ii", 1, 0))
            c.shutdown(socket.SHUT_RD)
        except OSError:
            pass
        c.close()


class Proxy:
    def __init__(self, args):
        self.args = args
        host, port = args.to.rsplit(":", 1)
        self.to = host, int(port)

    def mode(self):
        try:
            with open(self.args.mode_file) as f:
                return f.read().strip() or "pass"
        except (OSError, TypeError):
            return "pass"

    def hold(self):
        """Returns the mode once it is one in which something passes."""
        while True:
            mode = self.mode()
            if mode.startswith("delay-"):
                time.sleep(int(mode[len("delay-"):]) / 1000)
                return "pass"
            if mode != "stall":
                return mode
            time.sleep(0.02)

    def pump(self, source, sink, from_server):
        try:
            while True:
                data = source.recv(65536)
                mode = self.hold()
                if mode == "drop":
                    break
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                if not from_server:
                    for m in REQUEST.finditer(data):
                        print("request", m[1].decode(), m[2].decode(),
                              flush=True)
                if mode == "cut" and from_server:
                    sink.sendall(data[:len(data) // 2])
                    time.sleep(0.05)
                    break
                sink.sendall(data)
        except OSError:
            pass
        reset(source, sink)

    def watch(self, *conns):
        """Drop also those that say nothing."""
        while any(c.fileno() >= 0 for c in conns):
            if self.mode() == "drop":
                reset(*conns)
                return
            time.sleep(0.05)

    def serve(self, conn):
        if self.mode() == "drop":
            return reset(conn)
        try:
            server = socket.create_connection(self.to, 5)
        except OSError:
            return reset(conn)
        server.settimeout(None)
        for s in (conn, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for target in ((self.pump, (conn, server, False)),
                       (self.pump, (server, conn, True)),
                       (self.watch, (conn, server))):
            threading.Thread(target=target[0], args=target[1],
                             daemon=True).start()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode-file")
    args = parser.parse_args()
    proxy = Proxy(args)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", args.port))
    listener.listen(64)
    print(f"port {listener.getsockname()[1]}", flush=True)
    while True:
        conn, _ = listener.accept()
        proxy.serve(conn)


if __name__ == "__main__":
    main()
