#include "grammar/string_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <vector>

namespace mererun {
namespace {

std::map<std::string, std::string, std::less<>> make_formats() {
  // Days of the months in ordinary years, and the leap day: years that 4 divides but 100 doesn't, or 400
  // does.
  const std::string date =
      R"(([1-9]\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30))"
      R"(|02-(0[1-9]|1\d|2[0-8])))"
      R"(|([1-9]\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29))";
  const std::string time = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
  const std::string byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  const std::string hex = "[0-9a-fA-F]{1,4}";
  const std::string days = R"((\d{1,4}Y(\d{1,4}M(\d{1,4}D)?)?|\d{1,4}M(\d{1,4}D)?|\d{1,4}D))";
  const std::string hours = R"(T(\d{1,4}H(\d{1,4}M(\d{1,4}S)?)?|\d{1,4}M(\d{1,4}S)?|\d{1,4}S))";
  const auto whole = [](const std::string& pattern) { return "^(" + pattern + ")$"; };
  return {
      {"date", whole(date)},
      {"time", whole(time)},
      {"date-time", whole(date + "T" + time)},
      {"duration", whole(R"(P(\d{1,4}W|)" + days + "(" + hours + ")?|" + hours + ")")},
      {"uuid", whole("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")},
      {"email",
       whole(R"([A-Za-z0-9_+-]{1,32}(\.[A-Za-z0-9_+-]{1,16}){0,3}@)" + label + R"((\.)" + label + "){1,3}")},
      {"hostname", whole(label + R"((\.)" + label + "){0,4}")},
      {"ipv4", whole("(" + byte + R"(\.){3})" + byte)},
      {"ipv6", whole("(" + hex + ":){7}" + hex + "|::(" + hex + "(:" + hex + "){0,5})?|" + hex + "(:" + hex +
                     "){0,2}::(" + hex + "(:" + hex + "){0,2})?")},
      {"uri",
       whole("[a-z][a-z0-9+.-]{1,15}://" + label + R"((\.)" + label + R"(){0,4}(:[1-9]\d{0,3})?)" +
             R"((/[A-Za-z0-9._~!$&'()*+,;=:@-]{0,64}){0,16}(\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,256})?)" +
             R"((#[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,64})?)")},
  };
}

const std::map<std::string, std::string, std::less<>>& formats() {
  static const std::map<std::string, std::string, std::less<>> kFormats = make_formats();
  return kFormats;
}

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view name) {
  const auto format = formats().find(name);
  if (format == formats().end()) return std::nullopt;
  return format->second;
}

std::string format_names() {
  std::vector<std::string> names;
  for (const auto& [name, pattern] : formats()) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace mererun
