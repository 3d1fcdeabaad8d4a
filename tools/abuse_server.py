"""Abuses a live `mere.run api serve` and watches that it does not matter. Standard library only; Linux.

For --seconds, --abusers threads send what no client should: halves of requests, slow ones, streams that nobody reads or that
are left, bodies and headers that are too large, broken JSON and UTF-8, wrong routes, keys and methods, pipelines, floods of
connections. Meanwhile a client that behaves asks the same question every second and must get the same bytes as at first.
At the end nothing may be active or queued, the process must hold the files it held before and no more memory than in the
middle of the run, every request that was whole must have had its answer, and SIGTERM must end it with status 0.

    python3 -B tools/abuse_server.py [--seconds 300] [--program build/release/bin/mere.run] [--model models/demo-dense-4bit]
"""

import argparse
import collections
import json
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

KEY = "abuse"
MIB = 1 << 20
PATIENCE = 300  # seconds for an answer: the machine may be busy


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen(
            [program, "api", "serve", "--model", model, "--port", "0", "--api-key", KEY, "--rate-limit-per-minute", "0",
             "--max-active-requests", "4", "--max-queued-requests", "512", "--max-body-bytes", str(MIB), "--context-size",
             "4096", "--prefix-cache-bytes", str(32 * MIB), "--quiet"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        url = self.process.stdout.readline().strip().rstrip("/")
        self.port = int(url.rsplit(":", 1)[1])
        while Client(self).ask("GET", "/health")[0] != 200:
            time.sleep(0.2)

    def files(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("the server is gone")

    def status(self):
        return json.loads(Client(self).ask("GET", "/runtime/status")[1])

    def wait_idle(self):
        """Until nothing is active or queued and nobody but us is connected."""
        for _ in range(600):
            status = self.status()
            if status["admission"]["active"] == status["admission"]["queued"] == 0 and status["connections"] <= 1:
                return True
            time.sleep(0.2)
        return False


class Client:
    """One connection that says exactly what it is told to."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        self.received = b""

    def send(self, data):
        """False when the server has closed: it may have answered already."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def read_until(self, text):
        while text not in self.received:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return False
            self.received += data
        return True

    def answer(self):
        """Status and body of the next response, which has a length; (0, b"") if there is none."""
        if not self.read_until(b"\r\n\r\n"):
            return 0, b""
        head, _, rest = self.received.partition(b"\r\n\r\n")
        size = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), 0)
        self.received = rest
        while len(self.received) < size:
            data = self.socket.recv(65536)
            if not data:
                return 0, b""
            self.received += data
        body, self.received = self.received[:size], self.received[size:]
        return int(head.split()[1]), body

    def ask(self, *request, **options):
        self.send(text_of(*request, **options))
        result = self.answer()
        self.close()
        return result

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.socket.close()


def text_of(method, path, body=None, key=KEY, more=""):
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n{more}"
    return head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data


def chat(text, tokens, **more):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0, **more}
    return text_of("POST", "/v1/chat/completions", body)


class Abuser(threading.Thread):
    """Sends one kind of abuse after another. `lost` counts whole requests without their answer."""

    def __init__(self, server, seed, is_over):
        super().__init__()
        self.server, self.random, self.is_over = server, random.Random(seed), is_over
        self.counts, self.lost = collections.Counter(), []
        self.kinds = [getattr(self, name) for name in dir(self) if name.startswith("abuse_")]

    def run(self):
        while not self.is_over.is_set():
            self.one(self.random.choice(self.kinds))

    def one(self, kind):
        name = kind.__name__[6:]
        self.counts[name] += 1
        try:
            kind()
        except Exception as error:  # a finding, whatever it is
            self.lost.append(f"{name}: {error!r}")

    def client(self):
        return Client(self.server)

    def pause(self, most):
        self.is_over.wait(self.random.uniform(0, most))

    def prompt(self):
        return f"Count from {self.random.randrange(100000)} upwards."

    def expect(self, data, *statuses):
        client = self.client()
        client.send(data)
        status, body = client.answer()
        if status not in statuses:
            self.lost.append(f"expected {statuses}, got {status} {body[:200]!r} for {data[:200]!r}")
        client.close()

    def leave(self, client):
        client.reset() if self.random.random() < 0.5 else client.close()

    def abuse_half_head(self):
        client = self.client()
        text = chat(self.prompt(), 8)
        client.send(text[:self.random.randrange(60)])
        self.pause(0.5)
        self.leave(client)

    def abuse_half_body(self):
        client = self.client()
        client.send(chat(self.prompt(), 8)[:-self.random.randrange(1, 40)])
        self.pause(2)
        self.leave(client)

    def abuse_slow_sender(self):
        client = self.client()
        for byte in chat(self.prompt(), 2)[:40]:
            if self.is_over.wait(0.1) or not client.send(bytes([byte])):
                break
        self.leave(client)

    def abuse_slow_reader(self):
        client = self.client()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.send(chat(self.prompt(), 200, stream=True))
        self.pause(5)
        self.leave(client)

    def abuse_leave_in_mid_stream(self):
        client = self.client()
        client.send(chat(self.prompt(), 500, stream=True))
        client.read_until(b"data: ")
        self.pause(0.5)
        self.leave(client)

    def abuse_leave_before_the_answer(self):
        client = self.client()
        client.send(chat(self.prompt(), 500, stream=self.random.random() < 0.5))
        self.pause(0.3)
        self.leave(client)

    def abuse_stop_sending(self):
        client = self.client()
        client.send(chat(self.prompt(), 100, stream=True))
        client.socket.shutdown(socket.SHUT_WR)
        client.read_until(b"no such text")  # to the end of what it still sends
        client.close()

    def abuse_large_body(self):
        self.expect(text_of("POST", "/v1/chat/completions", b"x" * (2 * MIB)), 413)

    def abuse_large_chunks(self):
        head = text_of("POST", "/v1/messages", more="Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"")
        self.expect(head + b"20000\r\n" + b"x" * 0x20000 + (b"\r\n20000\r\n" + b"x" * 0x20000) * 9, 413)

    def abuse_large_head(self):
        self.expect(b"GET /health HTTP/1.1\r\n" + b"A: " + b"b" * 40000 + b"\r\n\r\n", 431)

    def abuse_many_headers(self):
        self.expect(text_of("GET", "/health", more="A: b\r\n" * 8000), 431)

    def abuse_broken_json(self):
        body = self.random.choice([b"", b"{", b"[" * 5000, b"{\"messages\": \"\xff\xfe\"}", b"null", b"{\"messages\": 5}",
                                   b"{\"messages\": []}x", b"{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}"])
        self.expect(text_of("POST", self.random.choice(["/v1/chat/completions", "/v1/messages", "/v1/responses"]), body), 400)

    def abuse_bad_fields(self):
        field = self.random.choice([{"temperature": 1e300}, {"max_tokens": -1}, {"top_p": "x"}, {"stop": [[]]}, {"n": 2},
                                    {"logit_bias": {"99999999": 1}}, {"response_format": {"type": "json_schema"}}])
        body = {"messages": [{"role": "user", "content": self.prompt()}], "max_tokens": 4, **field}
        self.expect(text_of("POST", "/v1/chat/completions", body), 400)

    def abuse_too_long_a_prompt(self):
        self.expect(chat("word " * 20000, 4), 400)

    def abuse_unknown_route(self):
        self.expect(text_of("GET", self.random.choice(["/v2", "/v1/models/none", "/../etc/passwd", "/%00", "/v1//models"])), 404)

    def abuse_wrong_method(self):
        self.expect(text_of(self.random.choice(["DELETE", "PUT", "GET"]), "/v1/chat/completions"), 405)

    def abuse_wrong_key(self):
        self.expect(text_of("POST", "/v1/chat/completions", {}, key=self.random.choice(["", "abus", "abuse2", "x" * 999])), 401)

    def abuse_no_http(self):
        self.expect(self.random.choice([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"GET\r\n\r\n", b"\0" * 64 + b"\r\n\r\n",
                                        b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]), 400)

    def abuse_pipeline(self):
        client = self.client()
        client.send(text_of("GET", "/health") * 5 + text_of("GET", "/v1/models") + chat(self.prompt(), 2) + text_of("GET", "/nope"))
        statuses = [client.answer()[0] for _ in range(8)]
        if statuses != [200] * 7 + [404]:
            self.lost.append(f"pipeline: {statuses}")
        client.close()

    def abuse_flood_of_connections(self):
        clients = [self.client() for _ in range(self.random.randrange(50, 200))]
        self.pause(0.5)
        for client in clients:
            self.leave(client)

    def abuse_whole_requests(self):
        """No abuse: others that wait for their answers as well."""
        text, count = self.prompt(), self.random.randrange(1, 40)
        messages = [{"role": "user", "content": text}]
        path, body = self.random.choice([
            ("/v1/chat/completions", {"messages": messages, "max_tokens": count}),
            ("/v1/messages", {"messages": messages, "max_tokens": count}),
            ("/v1/responses", {"input": text, "max_output_tokens": count}),
            ("/v1/completions", {"prompt": text, "max_tokens": count}),
            ("/tokenize", {"text": text})])
        self.expect(text_of("POST", path, body), 200)

    def abuse_whole_streams(self):
        client = self.client()
        client.send(chat(self.prompt(), self.random.randrange(1, 40), stream=True))
        if not client.read_until(b"data: [DONE]\n\n"):
            self.lost.append(f"stream: {client.received[-200:]!r}")
        client.close()


class Watcher(threading.Thread):
    """Asks one question every second and samples the server's memory."""

    def __init__(self, server, seconds):
        super().__init__()
        self.server, self.until = server, time.monotonic() + seconds
        self.first = self.reply()
        self.checks, self.slowest, self.differences, self.memory = 0, 0.0, [], []

    def reply(self):
        client = Client(self.server)
        client.send(chat("What is 12 + 30?", 24, logprobs=True, top_logprobs=2))
        status, body = client.answer()
        client.close()
        return json.dumps([status, json.loads(body or b"{}").get("choices")])

    def run(self):
        while time.monotonic() < self.until:
            began = time.monotonic()
            try:
                reply = self.reply()
            except (OSError, ValueError) as error:
                reply = repr(error)
            took = time.monotonic() - began
            self.checks, self.slowest = self.checks + 1, max(self.slowest, took)
            if reply != self.first:
                self.differences.append(reply)
            self.memory.append(self.server.memory())
            time.sleep(max(0.0, 1 - took))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/bin/mere.run")
    parser.add_argument("--model", default="models/demo-dense-4bit")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--abusers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    server = Server(options.program, options.model)
    try:
        return check(server, options)
    finally:
        server.process.kill()
        server.process.wait()


def check(server, options):
    is_over = threading.Event()
    warm = Abuser(server, options.seed, is_over)
    for kind in warm.kinds:  # what is made once is made now
        warm.one(kind)
    server.wait_idle()
    files, memory = server.files(), server.memory()

    watcher = Watcher(server, options.seconds)
    abusers = [Abuser(server, options.seed + i, is_over) for i in range(1, options.abusers + 1)]
    for thread in [watcher, *abusers]:
        thread.start()
    watcher.join()
    is_over.set()
    for thread in abusers:
        thread.join()
    is_idle = server.wait_idle()
    time.sleep(1)
    end_files, end_memory = server.files(), server.memory()
    server.process.send_signal(signal.SIGTERM)
    exit_status = server.process.wait(timeout=60)

    counts = sum((a.counts for a in abusers), collections.Counter())
    lost = [text for a in [warm, *abusers] for text in a.lost]
    third = max(1, len(watcher.memory) // 3)
    middle, last = max(watcher.memory[third:2 * third], default=0), max(watcher.memory[2 * third:], default=0)
    for name, count in sorted(counts.items()):
        print(f"{name:24} {count:6}")
    print(f"{counts.total()} abuses; {watcher.checks} checks of the answer, slowest {watcher.slowest:.1f} s")
    print(f"memory: {memory / MIB:.0f} MiB before, at most {middle / MIB:.0f} in the middle and {last / MIB:.0f} in the last "
          f"third, {end_memory / MIB:.0f} after; files: {files} before, {end_files} after")
    failures = {
        "differing answers": watcher.differences, "requests without their answer": lost,
        "not idle at the end": [] if is_idle else [server], "files left open": [end_files] if end_files > files else [],
        "memory still grows": [last] if last > middle * 1.05 + 4 * MIB else [],
        "exit status": [exit_status] if exit_status != 0 else []}
    for name, found in failures.items():
        if found:
            print(f"FAILED: {name}: {len(found)}, such as", *(str(one)[:600] for one in found[:5]), sep="\n  ")
    return 1 if any(failures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
