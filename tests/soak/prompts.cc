#include "tests/soak/prompts.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kCode{"Write a complete Python LRU cache using a dictionary and a doubly linked list.",
                           "Write a Python function that reverses a linked list.",
                           "Write a function that adds two numbers.",
                           "Write a Python function that checks whether a string is a palindrome.",
                           "Write a Python class for a stack with push, pop and peek.",
                           "Write a function that returns the n-th Fibonacci number.",
                           "Write a Python function that merges two sorted lists.",
                           "Write a binary search over a sorted list in Python.",
                           "Write a function that counts the words of a text.",
                           "Write a Python function that flattens a nested list.",
                           "Write a generator that yields prime numbers.",
                           "Write a function that computes the greatest common divisor."};
constexpr std::array kProse{"Tell me about the whale.",
                            "Describe the state of the union.",
                            "In the beginning God created the heaven and the earth.",
                            "Call me Ishmael. Some years ago",
                            "Write a few sentences about a harbor at night.",
                            "My fellow citizens, the year that has passed",
                            "And it came to pass in those days",
                            "Describe a storm at sea.",
                            "What do you think of peace and commerce?",
                            "Tell a short story about a raven.",
                            "The Congress of the United States",
                            "And the Lord spake unto Moses, saying"};
constexpr std::array kNames{"Ada",  "Ben",  "Cora", "Dev", "Elif", "Finn",
                            "Gita", "Hugo", "Iris", "Jon", "Kira", "Luis"};
constexpr std::array kThings{"apples", "books", "candles", "drums", "eggs", "feathers",
                             "globes", "hats",  "inks",    "jars",  "keys", "lamps"};

std::string math_prompt(int i) {
  const int a = 13 + 29 * i % 87, b = 7 + 17 * i % 53, c = 1 + 5 * i % 11;
  switch (i % 3) {
    case 0: return fmt::format("What is {} * {}?", a, b);
    case 1:
      return fmt::format(
          "{0} has {1} {2}. {0} buys {3} more and gives away {4}. How many {2} does {0} have now?",
          kNames[static_cast<std::size_t>(i) % kNames.size()], a,
          kThings[static_cast<std::size_t>(i) % kThings.size()], b, c);
    default: return fmt::format("What is {} + {}?", 101 * c, a);
  }
}

std::string retrieval_prompt(int i) {
  std::string text = "Read the notes and answer the question at the end.\n";
  const int lines = 20 + 15 * i;
  for (int n = 0; n < lines; ++n) {
    if (n == lines * 2 / 5) text += fmt::format("Note: the secret code is {}-{}.\n", 1000 + 37 * i, 10 + i);
    text += fmt::format("Line {}: {} put {} {} on the table.\n", n,
                        kNames[static_cast<std::size_t>(n) % kNames.size()], n % 9 + 1,
                        kThings[static_cast<std::size_t>(n * 5) % kThings.size()]);
  }
  return text + "What is the secret code?";
}

Json weather_tools() {
  return Json::parse(
      R"([{"type":"function","function":{"name":"get_weather","description":"Get the weather of a city.",
    "parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},
    "required":["city"]}}}])");
}

ChatPrompt user(const std::string& text, bool thinking) {
  return {.messages = std::make_shared<const Json>(Json::array({{{"role", "user"}, {"content", text}}})),
          .tools = nullptr,
          .template_arguments = std::make_shared<const Json>(Json{{"enable_thinking", thinking}})};
}

ChatPrompt with_tools(int i) {
  constexpr std::array kCities{"Paris", "Lima", "Oslo",  "Cairo", "Delhi", "Tokyo",
                               "Quito", "Rome", "Accra", "Perth", "Seoul", "Lagos"};
  const char* city = kCities[static_cast<std::size_t>(i) % kCities.size()];
  ChatPrompt prompt =
      user(fmt::format("What is the weather in {} for the next {} days?", city, 1 + i % 5), false);
  prompt.tools = std::make_shared<const Json>(weather_tools());
  return prompt;
}

}  // namespace

std::vector<SoakPrompt> soak_prompts(int count) {
  std::vector<SoakPrompt> prompts;
  for (int n = 0; n < count; ++n) {
    const int i = n / 5;
    const auto at = static_cast<std::size_t>(i);
    switch (n % 5) {
      case 0: prompts.push_back({"code", user(kCode[at % kCode.size()], i % 4 == 3)}); break;
      case 1: prompts.push_back({"math", user(math_prompt(i), i % 4 == 2)}); break;
      case 2: prompts.push_back({"prose", user(kProse[at % kProse.size()], false)}); break;
      case 3: prompts.push_back({"retrieval", user(retrieval_prompt(i), false)}); break;
      default: prompts.push_back({"tools", with_tools(i)}); break;
    }
  }
  return prompts;
}

}  // namespace mererun::testing
