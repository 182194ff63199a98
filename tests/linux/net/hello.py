#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the first flight of a TLS client. hello.py NAME|- [ech|split|big|garbage]"""
import ssl
import struct
import sys

name = sys.argv[1]
how = sys.argv[2] if len(sys.argv) > 2 else ""
ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ctx.check_hostname = False
ctx.verify_mode = ssl.CERT_NONE
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ctx.wrap_bio(incoming, outgoing, server_hostname=None if name == "-" else name)
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = outgoing.read()


def add_extension(record, kind, body):
    """The hello with one more extension at its end; all lengths follow."""
    b = bytearray(record[5:])
    at = 4 + 2 + 32
    at += 1 + b[at]
    at += 2 + struct.unpack(">H", b[at:at + 2])[0]
    at += 1 + b[at]
    ext = struct.pack(">HH", kind, len(body)) + body
    b[at:at + 2] = struct.pack(">H", struct.unpack(">H", b[at:at + 2])[0] + len(ext))
    b += ext
    b[1:4] = struct.pack(">I", len(b) - 4)[1:]
    return record[:3] + struct.pack(">H", len(b)) + bytes(b)


if how == "ech":
    hello = add_extension(hello, 0xfe0d, b"\0\0\1\0\1\5\0\x20" + b"k" * 32 + b"\0\x10" + b"p" * 16)
elif how == "split":
    body = hello[5:]
    hello = b"".join(hello[:3] + struct.pack(">H", len(p)) + p for p in (body[:50], body[50:]))
elif how == "big":
    hello = hello[:3] + struct.pack(">H", 17000) + hello[5:] + b"\0" * 17000
elif how == "garbage":
    hello = b"\x16\x03\x01\x00\x20" + b"\xff" * 64
sys.stdout.buffer.write(hello)
