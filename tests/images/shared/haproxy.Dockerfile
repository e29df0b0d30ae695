ARG BASE
FROM ${BASE}
RUN apt-get update -qq && apt-get install -qq --no-install-recommends haproxy > /dev/null && rm -rf /var/lib/apt/lists/*
USER haproxy
STOPSIGNAL SIGUSR1
CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
