"""Drives the server's page in a headless Chromium.

Called by scripts/check_page.sh, which provides the packages. Every check prints one line; the exit status is 1 if any failed.
"""

import argparse
import pathlib
import sys
import time

from playwright.sync_api import sync_playwright

from running_server import RunningServer

KEY = "check-page"
LONG_MS = 120_000


class Checks:
    def __init__(self, page, url, screenshots):
        self.page, self.url, self.screenshots = page, url, screenshots

    def last(self):
        return self.page.locator("article.assistant").last

    def ask(self, text):
        self.page.locator("#prompt").fill(text)
        self.page.keyboard.press("Enter")

    def until(self, expression):
        """Asks until it is true. The page's policy forbids what wait_for_function does: making code from text."""
        end = time.monotonic() + LONG_MS / 1000
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.1)

    def wait_for_end(self):
        self.until("!document.getElementById('send').disabled")

    def check_1_asks_for_the_key(self):
        self.page.goto(self.url)
        self.page.locator("#key-row").wait_for(state="visible", timeout=LONG_MS)
        self.page.locator("#key").fill(KEY)
        self.page.locator("#key").press("Tab")
        self.until("document.getElementById('model').textContent.includes('demo-dense-4bit')")

    def check_2_sends_and_streams(self):
        self.page.locator("#temperature").fill("0")
        self.ask("What is 12 + 30?")
        self.wait_for_end()
        assert "42" in self.last().locator(".text").inner_text()
        numbers = self.last().locator(".numbers").inner_text()
        assert "tokens/s" in numbers and "acceptance" in numbers, numbers
        assert "Answer complete" in self.page.locator("#status").text_content()
        assert self.page.evaluate("document.activeElement.id") == "prompt"

    def check_3_shows_code_apart_and_markup_as_text(self):
        self.ask("Write a Python function that checks whether a number is prime. <b>x</b>")
        self.wait_for_end()
        assert self.page.locator("article.user b").count() == 0
        assert "<b>x</b>" in self.page.locator("article.user").last.inner_text()
        self.page.emulate_media(color_scheme="light")
        self.page.screenshot(path=str(self.screenshots / "page-light.png"))
        self.page.emulate_media(color_scheme="dark")
        self.page.screenshot(path=str(self.screenshots / "page-dark.png"))

    def check_4_stops(self):
        self.page.locator("#tokens").fill("4000")
        self.page.locator("#temperature").fill("2")
        self.ask("Write a long story without an end.")
        self.until("[...document.querySelectorAll('article.assistant .text')].pop().textContent.length > 10")
        self.page.keyboard.press("Escape")
        self.wait_for_end()
        assert "stopped" in self.last().locator(".numbers").inner_text() or self.last().locator(".text").inner_text()

    def check_5_reload_keeps_the_conversation(self):
        before = self.page.locator("article").count()
        self.page.reload()
        assert self.page.locator("article").count() == before
        self.page.get_by_role("button", name="New chat").click()
        assert self.page.locator("article").count() == 0

    def check_6_names_everything(self):
        for role, name in (("textbox", "Message"), ("button", "Send"), ("button", "Stop"), ("button", "Dark"),
                           ("spinbutton", "Temperature"), ("checkbox", "Think first")):
            assert self.page.get_by_role(role, name=name).count() == 1, name
        assert self.page.locator("html[lang]").count() == 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--screenshots", required=True)
    arguments = parser.parse_args()
    screenshots = pathlib.Path(arguments.screenshots)
    screenshots.mkdir(parents=True, exist_ok=True)
    failures = 0
    problems = []
    # Whether drafts pay is not left to a busy machine: the page shows their acceptance.
    with RunningServer(arguments.program, KEY, "--mtp-cost", "fixed") as server, sync_playwright() as playwright:
        url = server.url + "/"
        browser = playwright.chromium.launch(executable_path=arguments.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 800})
        page.set_default_timeout(LONG_MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(request.url) if not request.url.startswith(url) else None)
        checks = Checks(page, url, screenshots)
        for name in sorted(name for name in dir(checks) if name.startswith("check_")):
            try:
                getattr(checks, name)()
                print("ok      " + name)
            except Exception as error:  # every check is tried
                failures += 1
                print(f"FAILED  {name}: {type(error).__name__}: {error}")
        browser.close()
    for problem in problems:
        failures += 1
        print("FAILED  in the page: " + problem)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
