"""What a client of `mere.run api serve` sees. Standard library only.

Three questions, each answered by a ratio of one run:
  clients    tokens a second of all clients together, --clients at once against one alone, arms alternating (A B B A ...)
  form       tokens a second of one client whose replies have to match a grammar that every text matches, against without
  follow-up  time to the first token of a prompt of about --prompt-tokens tokens, and of the question after its answer,
             whose beginning the prefix cache holds; a new text each time

    python3 -B bench/server/serve_bench.py [--program build/release/bin/mere.run] [--model models/demo-dense-4bit]
"""

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import threading
import time

WORDS = "river stone lamp seven green walks table often under bright copper field music north early paper".split()


class Server:
    def __init__(self, options):
        self.process = subprocess.Popen(
            [options.program, "api", "serve", "--model", options.model, "--port", "0", "--rate-limit-per-minute", "0",
             "--max-active-requests", str(options.clients), "--prefix-cache-bytes", str(2 << 30), "--quiet"],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])
        while self.get("/health") is None:
            time.sleep(0.1)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return json.loads(body) if response.status == 200 else None

    def post(self, path, body):
        """Seconds to the first event of a stream that holds text, and the events."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        began = time.monotonic()
        connection.request("POST", path, json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}))
        response = connection.getresponse()
        first, events = None, []
        for line in response:
            if line.startswith(b"data: {"):
                events.append(json.loads(line[6:]))
                if first is None and events[-1]["choices"] and text_of(events[-1]):
                    first = time.monotonic() - began
        if response.status != 200 or not events or "usage" not in events[-1]:
            raise RuntimeError(f"{path}: status {response.status}, {len(events)} events")
        return first, events


def text_of(event):
    choice = event["choices"][0]
    return choice["delta"].get("content") if "delta" in choice else choice["text"]


def tokens_per_second(server, clients, options, round_number, more=None):
    """--requests completions by `clients` clients that ask one after another; no prompt is asked twice."""
    numbers, lock, total = iter(range(options.requests)), threading.Lock(), [0]

    def work():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            prompt = [(7919 * (number + 1) + 104729 * round_number + 31 * i) % 4000 + 10 for i in range(options.short_tokens)]
            body = {"prompt": prompt, "max_tokens": options.reply_tokens, "temperature": 0, **(more or {})}
            _, events = server.post("/v1/completions", body)
            with lock:
                total[0] += events[-1]["usage"]["completion_tokens"]

    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return total[0] / (time.monotonic() - began)


def clients_ratio(server, options):
    rates = {1: [], options.clients: []}
    for i, clients in enumerate([1, options.clients, options.clients, 1] * options.rounds):
        rates[clients].append(tokens_per_second(server, clients, options, i))
    one, many = (rates[clients] for clients in (1, options.clients))
    print(f"clients: 1: {line_of(one)} tokens/s; {options.clients}: {line_of(many)} tokens/s; "
          f"ratio {statistics.median(many) / statistics.median(one):.2f}")


def form_ratio(server, options):
    rates = {False: [], True: []}
    for i, is_formed in enumerate([False, True, True, False] * options.rounds):
        more = {"grammar": "root ::= .{0,100000}"} if is_formed else {}
        rates[is_formed].append(tokens_per_second(server, 1, options, 1000 + i, more))
    print(f"form: without: {line_of(rates[False])} tokens/s; with: {line_of(rates[True])} tokens/s; "
          f"ratio {statistics.median(rates[True]) / statistics.median(rates[False]):.2f}")


def line_of(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def follow_up_ratio(server, options):
    cold, warm, sizes, reused = [], [], [], []
    per_word = len(server_tokens(server, " ".join(WORDS * 10))) / (10 * len(WORDS))
    for i in range(options.follow_ups):
        words = [WORDS[(5 * j + j * j * (i + 1)) % len(WORDS)] for j in range(int(options.prompt_tokens / per_word))]
        messages = [{"role": "user", "content": f"Text {i}: " + " ".join(words) + "\nWhich word comes first?"}]
        seconds, events = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 16, "temperature": 0})
        cold.append(seconds)
        sizes.append(events[-1]["usage"]["prompt_tokens"])
        answer = "".join(text_of(e) or "" for e in events if e["choices"])
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And which one last?"}]
        seconds, events = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 16, "temperature": 0})
        warm.append(seconds)
        reused.append(events[-1]["prefix_cache"]["matchedTokens"])
    print(f"follow-up: {sizes[0]} prompt tokens, first token after {line_of(cold, 3)} s; the next question, {reused[0]} tokens "
          f"reused, after {line_of(warm, 3)} s; ratio {statistics.median(c / w for c, w in zip(cold, warm)):.0f}")


def server_tokens(server, text):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request("POST", "/tokenize", json.dumps({"text": text}))
    return json.loads(connection.getresponse().read())["tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/bin/mere.run")
    parser.add_argument("--model", default="models/demo-dense-4bit")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=16, help="of one arm")
    parser.add_argument("--rounds", type=int, default=2, help="of four arms")
    parser.add_argument("--short-tokens", type=int, default=64)
    parser.add_argument("--reply-tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=16384)
    parser.add_argument("--follow-ups", type=int, default=3)
    options = parser.parse_args()
    server = Server(options)
    try:
        server.post("/v1/completions", {"prompt": "Warm up.", "max_tokens": 32})
        clients_ratio(server, options)
        form_ratio(server, options)
        follow_up_ratio(server, options)
        server.process.send_signal(signal.SIGTERM)
        return server.process.wait(timeout=60)
    finally:
        server.process.kill()


if __name__ == "__main__":
    raise SystemExit(main())
