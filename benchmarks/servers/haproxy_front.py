"""HAProxy in front of one server, as a lower bound for gateways. Arguments: its URL, our port."""

from __future__ import annotations

import os
import sys
import tempfile

CONFIG = """\
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend clients
  bind 127.0.0.1:{port}
  default_backend servers
backend servers
  balance hdr(X-Session-ID)
  hash-type consistent
  server one {address}
"""

url, port = sys.argv[1:]
with tempfile.NamedTemporaryFile("w", suffix=".cfg", delete=False) as file:
    file.write(CONFIG.format(port=port, address=url.removeprefix("http://")))
os.execvp("haproxy", ["haproxy", "-db", "-f", file.name])
