#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A data server of Mooncake's TCP transport that does what it is told to.

Serves SIZE bytes at ADDR, each aligned 8 bytes holding their own offset. Prints
"port N" and then a line for each connection and request. How it behaves is a
word (--mode, or the content of --mode-file, read anew for each request);
"once-WORD" behaves so once and is honest afterwards. See WORDS.
"""
import argparse
import array
import os
import socket
import struct
import sys
import threading
import time

HEADER = struct.Struct("<QQB7x")
MAGIC = 0x4D435456 << 32
OK, REFUSED = 0, 1

WORDS = {
    "ok": "honest",
    # answers to either
    "silent": "takes the request, never answers",
    "close": "closes instead of answering",
    "reset": "resets instead of answering",
    "refuse": "status 1, then closes",
    "refuse-upper": "the same for the upper half of its memory only",
    "unknown": "a status that nobody defined",
    "magic": "a status frame with a wrong magic",
    "half-status": "4 bytes of a status frame, then silence",
    # answers to reads
    "reset-mid": "OK, half of the payload, reset",
    "close-mid": "OK, half of the payload, end of file",
    "stall-mid": "OK, half of the payload, silence",
    "close-after-ok": "OK, then closes",
    "drip": "the payload a byte a second",
    "extra": "100 bytes more than asked for",
    # answers to writes
    "refuse-early": "status 1 before reading the payload",
    "drop-body": "resets with half of the payload read",
    "stall-body": "stops reading half-way",
    "no-ack": "stores all and says nothing",
}


class Gone(Exception):
    pass


def receive(conn, size):
    data = bytearray()
    while len(data) < size:
        piece = conn.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise Gone
        data += piece
    return data


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack("ii", 1, 0))
    conn.close()
    raise Gone


def silence():
    while True:
        time.sleep(60)


def status(code):
    return struct.pack("<Q", MAGIC | code)


class Server:
    def __init__(self, args):
        self.args = args
        self.lock = threading.Lock()
        words = (args.size + 7) // 8
        self.memory = bytearray(array.array(
            "Q", range(0, words * 8, 8)).tobytes()[:args.size])
        self.spent = None

    def mode(self):
        word = self.args.mode
        if self.args.mode_file and os.path.exists(self.args.mode_file):
            with open(self.args.mode_file) as f:
                word = f.read().strip()
        if word.startswith("once-"):
            with self.lock:
                if self.spent == word:
                    return "ok"
                self.spent = word
            word = word[len("once-"):]
        if word not in WORDS:
            raise SystemExit(f"fake_peer: what is '{word}'?")
        return word

    def serve(self, conn):
        say("connect")
        try:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                if self.args.idle_close:
                    conn.settimeout(self.args.idle_close)
                self.request(conn)
                if self.args.one_shot:
                    break
        except (Gone, OSError):
            pass
        finally:
            conn.close()

    def request(self, conn):
        size, addr, opcode = HEADER.unpack(receive(conn, HEADER.size))
        conn.settimeout(None)
        write, v2 = opcode & 1, opcode & 0x80
        offset = addr - self.args.addr
        say(f"{'write' if write else 'read'} {offset} {size} "
            f"v{2 if v2 else 1}")
        mode = self.mode()
        fits = size and 0 <= offset and offset + size <= self.args.size
        if mode == "refuse-upper":
            fits = fits and offset + size <= self.args.size // 2
        elif mode in ("refuse", "refuse-early"):
            fits = False
        if not fits:
            if write and mode != "refuse-early":
                receive(conn, size)
            if v2:
                conn.sendall(status(REFUSED))
            raise Gone
        self.misbehave(conn, mode, v2)
        if write:
            self.write(conn, mode, v2, offset, size)
        else:
            self.read(conn, mode, v2, offset, size)

    @staticmethod
    def misbehave(conn, mode, v2):
        """What is the same for reads and writes."""
        if mode == "silent":
            silence()
        elif mode == "close":
            raise Gone
        elif mode == "reset":
            reset(conn)
        elif mode == "unknown" and v2:
            conn.sendall(status(7))
            raise Gone
        elif mode == "magic" and v2:
            conn.sendall(b"HTTP/1.1")
            time.sleep(1)
            raise Gone
        elif mode == "half-status" and v2:
            conn.sendall(status(OK)[:4])
            silence()

    def read(self, conn, mode, v2, offset, size):
        data = self.memory[offset:offset + size]
        if v2:
            conn.sendall(status(OK))
        if mode == "close-after-ok":
            raise Gone
        if mode.endswith("-mid"):
            conn.sendall(data[:size // 2])
            time.sleep(0.1)
            if mode == "reset-mid":
                reset(conn)
            if mode == "close-mid":
                raise Gone
            silence()
        if mode == "drip":
            for i in range(size):
                conn.sendall(data[i:i + 1])
                time.sleep(1)
        conn.sendall(data + (b"x" * 100 if mode == "extra" else b""))

    def write(self, conn, mode, v2, offset, size):
        if mode in ("drop-body", "stall-body"):
            receive(conn, size // 2)
            if mode == "drop-body":
                reset(conn)
            silence()
        self.memory[offset:offset + size] = receive(conn, size)
        if mode == "no-ack":
            silence()
        if v2:
            conn.sendall(status(OK))


def say(text):
    print(text, flush=True)


def black_hole(port):
    """A port that answers no connection: its queue is full for ever."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(0)
    held = []
    for _ in range(4):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(listener.getsockname())
        held.append(s)
    time.sleep(0.2)
    say(f"port {listener.getsockname()[1]}")
    silence()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="\n".join(
            f"  {w:15} {text}" for w, text in WORDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", type=lambda t: int(t, 0),
                        default=0x7f0000000000)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", default="ok")
    parser.add_argument("--mode-file")
    parser.add_argument("--one-shot", action="store_true",
                        help="a connection serves one request")
    parser.add_argument("--idle-close", type=float, metavar="SECONDS")
    parser.add_argument("--black-hole", action="store_true")
    args = parser.parse_args()
    if args.black_hole:
        black_hole(args.port)
    server = Server(args)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", args.port))
    listener.listen(64)
    say(f"port {listener.getsockname()[1]}")
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=server.serve, args=(conn,),
                         daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
