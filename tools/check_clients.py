"""Drives `mere.run api serve` with the official OpenAI and Anthropic clients.

Called by scripts/check_clients.sh, which provides the packages. Every check prints one line; the exit status is 1 if any
failed. The model is a bundled one: its answers to sums are right, its other texts are only looked at for their form.
"""

import argparse
import json
import sys
import time
import urllib.request

import anthropic
import openai

from running_server import RunningServer

KEY = "check-clients"
SUM = "What is 12 + 30?"
TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


class Server(RunningServer):
    def __init__(self, program, model):
        super().__init__(program, KEY, "--model", model, "--max-active-requests", "4")

    def status(self):
        request = urllib.request.Request(self.url + "/runtime/status", headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


class OpenAiChecks:
    def __init__(self, server, model):
        self.server, self.model = server, model
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=300)

    def chat(self, content=SUM, **more):
        more.setdefault("temperature", 0)
        more.setdefault("max_tokens", 48)
        return self.client.chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": content}], **more)

    def check_models(self):
        expect([m.id for m in self.client.models.list()] == [self.model], "one model")
        expect(self.client.models.retrieve(self.model).id == self.model, "its own page")

    def check_chat(self):
        reply = self.chat()
        expect("42" in reply.choices[0].message.content, reply.choices[0].message.content)
        expect(reply.choices[0].finish_reason == "stop", reply.choices[0].finish_reason)
        expect(reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens, "usage adds up")
        again = self.chat()
        expect(again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens, "the prompt was cached")
        expect(again.choices[0].message.content == reply.choices[0].message.content, "a hit equals a cold run")

    def check_streaming(self):
        whole = self.chat().choices[0].message.content
        text, usage = "", None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        expect(text == whole, (text, whole))
        expect(usage.completion_tokens > 0, "usage at the end")

    def check_speculation_changes_no_text(self):
        for prompt in (SUM, "Write a Python function that reverses a string.", "Schreibe einen Satz über Käse. 你好"):
            for temperature in (0, 1):
                texts = [self.chat(prompt, temperature=temperature, seed=7, max_tokens=64,
                                   extra_body={"speculation": s}).choices[0].message.content for s in ("on", "off")]
                expect(texts[0] == texts[1], texts)

    def check_tools_loop(self):
        tools = [{"type": "function", "function": TOOL}]
        messages = [{"role": "user", "content": "Weather in Paris?"}]
        reply = self.client.chat.completions.create(
            model=self.model, messages=messages, tools=tools, max_tokens=200, temperature=0,
            tool_choice={"type": "function", "function": {"name": "get_weather"}})
        message = reply.choices[0].message
        if reply.choices[0].finish_reason == "length":
            expect(not message.tool_calls, "a call that was cut is dropped")
            return
        expect(reply.choices[0].finish_reason == "tool_calls", reply.choices[0].finish_reason)
        call = message.tool_calls[0]
        expect(call.function.name == "get_weather", call.function.name)
        expect(isinstance(json.loads(call.function.arguments), dict), call.function.arguments)
        messages += [message.model_dump(exclude_none=True),
                     {"role": "tool", "tool_call_id": call.id, "content": "sunny\x1b[0m"}]
        final = self.client.chat.completions.create(model=self.model, messages=messages, tools=tools, max_tokens=16)
        expect(final.choices[0].finish_reason in ("stop", "length", "tool_calls"), "the loop goes on")

    def check_json_schema(self):
        for temperature in (0, 1.5):
            reply = self.chat("Name a person.", temperature=temperature, seed=3, max_tokens=120, response_format={
                "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}})
            value = json.loads(reply.choices[0].message.content)
            expect(set(value) == {"name", "age"} and isinstance(value["age"], int) and 0 <= value["age"] <= 99, value)
        reply = self.chat("An object.", max_tokens=200, response_format={"type": "json_object"})
        if reply.choices[0].finish_reason == "stop":
            expect(isinstance(json.loads(reply.choices[0].message.content), dict), "an object")

    def check_images_are_refused(self):
        try:
            self.chat([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": IMAGE}}])
        except openai.BadRequestError as error:
            expect(error.param == "messages[0].content[1].type" and "without vision" in error.message, error.message)
            return
        raise AssertionError("an image was taken")

    def check_bad_requests(self):
        for field, value in {"temperature": 9, "n": 2, "seed": "x", "stop": [""]}.items():
            try:
                self.chat(extra_body={field: value})
            except openai.BadRequestError as error:
                expect(error.param == field, (field, error.message))
            else:
                raise AssertionError(field + " was taken")
        try:
            openai.OpenAI(base_url=self.server.url + "/v1", api_key="wrong", max_retries=0).models.list()
        except openai.AuthenticationError:
            return
        raise AssertionError("a wrong key was taken")

    def check_logprobs(self):
        reply = self.chat(logprobs=True, top_logprobs=3)
        rows = reply.choices[0].logprobs.content
        expect("".join(bytes(row.bytes).decode() for row in rows).strip() == reply.choices[0].message.content.strip(),
               "the tokens are the text")
        for row in rows:
            expect(row.logprob <= 0 and len(row.top_logprobs) == 3, row)
            expect(row.token == row.top_logprobs[0].token, "greedy takes the first")

    def check_cancellation(self):
        before = self.server.status()["admission"]
        stream = self.chat("Count from one to five thousand.", stream=True, max_tokens=4000, temperature=1,
                           extra_body={"logit_bias": {"8162": -100, "8160": -100}})
        next(iter(stream))
        stream.close()
        for _ in range(200):
            if self.server.status()["admission"]["active"] == before["active"] == 0:
                return
            time.sleep(0.05)
        raise AssertionError("the slot is still taken")

    def check_responses(self):
        reply = self.client.responses.create(model=self.model, input=SUM, temperature=0, max_output_tokens=48)
        expect("42" in reply.output_text and reply.status == "completed", reply.output_text)
        text = ""
        with self.client.responses.stream(model=self.model, input=SUM, temperature=0, max_output_tokens=48) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
            final = stream.get_final_response()
        expect(text == reply.output_text == final.output_text, (text, reply.output_text))

    def check_completions(self):
        reply = self.client.completions.create(model=self.model, prompt="def f(x):", max_tokens=12, temperature=0, logprobs=2)
        expect(reply.choices[0].text and len(reply.choices[0].logprobs.tokens) == reply.usage.completion_tokens, "text")


class AnthropicChecks:
    def __init__(self, server, model):
        self.model = model
        self.client = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=300)

    def create(self, content=SUM, **more):
        more.setdefault("max_tokens", 48)
        return self.client.messages.create(model=self.model, messages=[{"role": "user", "content": content}],
                                           extra_body={"temperature": 0}, **more)

    def check_message(self):
        reply = self.create(system="You answer sums.")
        expect("42" in reply.content[0].text and reply.stop_reason == "end_turn", reply)
        count = self.client.messages.count_tokens(model=self.model, system="You answer sums.",
                                                  messages=[{"role": "user", "content": SUM}])
        expect(count.input_tokens == reply.usage.input_tokens + reply.usage.cache_read_input_tokens, count)
        stopped = self.create(stop_sequences=["="])
        expect(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "=", stopped)

    def check_streaming(self):
        whole = self.create()
        with self.client.messages.stream(model=self.model, max_tokens=48, extra_body={"temperature": 0},
                                         messages=[{"role": "user", "content": SUM}]) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        expect(text == whole.content[0].text == final.content[0].text, text)
        expect(final.usage.output_tokens == whole.usage.output_tokens, final.usage)

    def check_tools(self):
        tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
        reply = self.create("Weather in Paris?", max_tokens=200, tools=[tool], tool_choice={"type": "any"})
        if reply.stop_reason == "max_tokens":
            return
        use = next(block for block in reply.content if block.type == "tool_use")
        expect(use.name == "get_weather" and isinstance(use.input, dict), use)
        final = self.client.messages.create(
            model=self.model, max_tokens=16, tools=[tool],
            messages=[{"role": "user", "content": "Weather in Paris?"},
                      {"role": "assistant", "content": [block.model_dump() for block in reply.content]},
                      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}])
        expect(final.stop_reason, "the loop goes on")

    def check_thinking(self):
        reply = self.create(max_tokens=200, thinking={"type": "enabled", "budget_tokens": 1024})
        expect(reply.content[0].type in ("thinking", "text"), reply)

    def check_images_are_refused(self):
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        try:
            self.create([{"type": "image", "source": source}])
        except anthropic.BadRequestError as error:
            expect("without vision" in str(error), str(error))
            return
        raise AssertionError("an image was taken")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    failures = 0
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}, {arguments.model}")
    server = Server(arguments.program, arguments.model)
    with server:
        for checks in (OpenAiChecks(server, arguments.model), AnthropicChecks(server, arguments.model)):
            for name in [name for name in dir(checks) if name.startswith("check_")]:
                label = type(checks).__name__.replace("Checks", "") + " " + name.removeprefix("check_")
                try:
                    getattr(checks, name)()
                    print(f"ok      {label}")
                except Exception as error:  # every check is tried
                    failures += 1
                    print(f"FAILED  {label}: {type(error).__name__}: {error}")
    if server.exit_status != 0:
        failures += 1
        print(f"FAILED  exit status {server.exit_status} after SIGTERM")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
