"""Starts `mere.run api serve` for the checks that drive it from outside."""

import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.request


class RunningServer:
    """The program on a free port, without a rate limit. `with` waits until it is healthy, and ends it by SIGTERM."""

    def __init__(self, program, key, *options):
        self.process = subprocess.Popen(
            [str(pathlib.Path(program).resolve()), "api", "serve", "--port", "0", "--api-key", key,
             "--rate-limit-per-minute", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip().rstrip("/")

    def __enter__(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=10)
                return self
            except urllib.error.HTTPError:
                time.sleep(0.2)
        raise RuntimeError("the server did not become healthy")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.exit_status = self.process.wait(timeout=60)
