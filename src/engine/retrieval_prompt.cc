#include "engine/retrieval_prompt.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace mererun {
namespace {

constexpr std::string_view kMarker = "45257";
constexpr std::string_view kFact = "The secret code for the mill is 45257.";
constexpr std::string_view kQuestion = "What is the secret code for the mill?";

/// Sentence i of the filler: the same words in another order each time, with a number in every one.
std::string filler_sentence(int i) {
  constexpr std::array<std::string_view, 9> kNames = {"Sam",  "Mona", "Iris", "Ben",  "Cora",
                                                      "Vito", "Wren", "Elif", "Quinn"};
  constexpr std::array<std::string_view, 10> kPlaces = {"harbor", "station", "library", "school", "bridge",
                                                        "tower",  "castle",  "valley",  "garden", "market"};
  constexpr std::array<std::string_view, 7> kThings = {"jars", "maps",  "vases", "pens",
                                                       "urns", "tiles", "lamps"};
  const auto at = static_cast<std::size_t>(i);
  const std::string_view name = kNames[at * 2 % kNames.size()];
  const std::string_view other = kNames[(at * 2 + 5) % kNames.size()];
  const std::string_view place = kPlaces[at * 3 % kPlaces.size()];
  const std::string_view things = kThings[at * 5 % kThings.size()];
  const int number = 2 + i * 7 % 37;
  switch (i % 3) {
    case 0: return fmt::format("{} and {} carried {} {} to the {}.", name, other, number, things, place);
    case 1: return fmt::format("It rained on the {} for {} days.", place, number);
    default: return fmt::format("{} counted {} {} near the {}.", name, number, things, place);
  }
}

/// `count` sentences with the fact after 40% of them, then `padding`, then the question.
std::string notes(int count, const std::string& padding) {
  std::string text = "Read the notes and answer the question.\n\n";
  const int marked = count * 2 / 5;
  for (int i = 0; i < count; ++i) {
    if (i == marked) text.append(kFact).append(" ");
    text += filler_sentence(i);
    if (i + 1 < count) text += ' ';
  }
  if (count == 0) text += kFact;
  return text.append(padding).append("\n\n").append(kQuestion);
}

std::string repeated(std::string_view word, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += word;
  return text;
}

using MakeTurns = std::function<std::vector<ChatTurn>(const std::string& padding)>;

/// The conversation with as much padding as makes it `target` tokens; none if no word does.
std::optional<std::vector<ChatTurn>> pad_to(const ChatLength& length, int target, const MakeTurns& make) {
  const int missing = target - length(make({}));
  if (missing < 0) return std::nullopt;
  if (missing == 0) return make({});
  for (const std::string_view word : {" and", " so", " the", " a", "7", "."}) {
    // One token a word, or two of them merge, or the first joins its neighbour: try the counts nearby.
    for (const int count : {missing, missing - 1, missing + 1, missing + 2}) {
      if (count < 1) continue;
      std::vector<ChatTurn> turns = make(repeated(word, count));
      if (length(turns) == target) return turns;
    }
  }
  return std::nullopt;
}

/// The most filler sentences whose prompt is at most `target` tokens long.
int most_sentences(const ChatLength& length, int target) {
  const auto fits = [&](int count) { return length({{"user", notes(count, {})}}) <= target; };
  if (!fits(0)) return -1;
  int low = 0, high = 1;
  while (fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

[[noreturn]] void refuse(std::string_view what, int target) {
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("retrieval prompt: expected a {} of exactly {} tokens, got none that this tokenizer "
                  "and template can form",
                  what, target));
}

}  // namespace

RetrievalPrompts build_retrieval_prompts(const ChatLength& length, int first_tokens, int follow_up_tokens) {
  RetrievalPrompts prompts{.marker = std::string(kMarker), .first = {}, .follow_up = {}};
  const int most = most_sentences(length, first_tokens);
  std::optional<std::vector<ChatTurn>> first;
  // A shorter text leaves more to pad, should the exact remainder be out of reach.
  for (int count = most; !first && count >= 0 && count > most - 3; --count)
    first = pad_to(length, first_tokens, [&](const std::string& padding) {
      return std::vector<ChatTurn>{{"user", notes(count, padding)}};
    });
  if (!first) refuse("prompt", first_tokens);
  prompts.first = *first;

  for (const std::string_view reply : {kFact, kMarker}) {
    for (const std::string_view question : {"Repeat the code once more.", "Repeat the code.", "Again."}) {
      const auto follow_up = pad_to(length, follow_up_tokens, [&](const std::string& padding) {
        std::vector<ChatTurn> turns = prompts.first;
        turns.push_back({"assistant", std::string(reply)});
        turns.push_back({"user", std::string(question) + padding});
        return turns;
      });
      if (!follow_up) continue;
      prompts.follow_up = *follow_up;
      return prompts;
    }
  }
  refuse("follow-up", follow_up_tokens);
}

std::string numbered_prompt(int lines) {
  std::string text = "Read the notes and answer the question.\n\n";
  const int marked = lines * 2 / 5;
  for (int i = 0; i < lines; ++i) {
    if (i == marked) text.append(kFact).append("\n");
    text += fmt::format("{}. {}\n", i + 1, filler_sentence(i));
  }
  return text.append("\n").append(kQuestion);
}

}  // namespace mererun
