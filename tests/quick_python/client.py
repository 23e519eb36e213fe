"""Asks the process that waits (server.py) to run a command, and ends as that does: client.py SOCKET ARGUMENTS..."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

streams = []
for stream in range(3):
    try:
        os.fstat(stream)
        streams.append(stream)
    except OSError:  # the test has closed it
        pass
umask = os.umask(0)
ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_IGN]
call = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ), umask, ignored, streams]).encode()
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
socket.send_fds(connection, [len(call).to_bytes(4, "big")], streams)
connection.sendall(call)
process = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(process, number))
status = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.WEXITSTATUS(status))
