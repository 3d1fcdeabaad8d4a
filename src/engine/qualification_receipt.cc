#include "engine/qualification_receipt.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"

namespace mererun {
namespace {

// A receipt is some dozens of numbers.
constexpr std::uintmax_t kLargestReceipt = std::uintmax_t{4} << 20;

std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) fail_expected(ErrorCode::kIo, path.string(), "a readable file", error.message());
  if (bytes > kLargestReceipt) {
    fail_expected(ErrorCode::kInvalidArgument, path.string(),
                  fmt::format("a receipt of at most {} bytes", kLargestReceipt),
                  fmt::format("{} bytes", bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail_expected(ErrorCode::kIo, path.string(), "a readable file", std::strerror(errno));
  return text;
}

template <class T>
T field(const nlohmann::json& receipt, const std::filesystem::path& path, const char* name,
        const char* expected) {
  const std::string where = fmt::format("{}: {}", path.string(), name);
  const auto found = receipt.find(name);
  if (found == receipt.end()) fail_expected(ErrorCode::kInvalidArgument, where, expected, "nothing");
  if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) return found->get<bool>();
  } else if constexpr (std::is_same_v<T, int>) {
    if (found->is_number_integer()) return found->get<int>();
  } else {
    if (found->is_string()) return found->get<std::string>();
  }
  fail_expected(ErrorCode::kInvalidArgument, where, expected, found->type_name());
}

}  // namespace

bool QualificationReceipt::counts_for(std::string_view fingerprint_now, std::string_view backend_now) const {
  return pass && contract_version == kNumericContractVersion && fingerprint == fingerprint_now &&
         backend == backend_now;
}

std::string receipt_file_name(std::string_view model) { return fmt::format("{}.qualification.json", model); }

QualificationReceipt read_qualification_receipt(const std::filesystem::path& path) {
  const nlohmann::json json = nlohmann::json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    fail_expected(ErrorCode::kInvalidArgument, path.string(), "a JSON object",
                  json.is_discarded() ? "text that is no JSON" : json.type_name());
  }
  return {.path = path,
          .model = field<std::string>(json, path, "model", "a string"),
          .fingerprint = field<std::string>(json, path, "fingerprint", "a string"),
          .backend = field<std::string>(json, path, "backend", "a string"),
          .contract_version = field<int>(json, path, "contractVersion", "an integer"),
          .pass = field<bool>(json, path, "pass", "true or false")};
}

std::optional<QualificationReceipt> find_passing_receipt(const std::filesystem::path& folder,
                                                         std::string_view id,
                                                         const ModelSurroundings& surroundings,
                                                         std::vector<std::string>& warnings) {
  std::vector<std::filesystem::path> folders = store_folders(surroundings);
  folders.insert(folders.begin(), folder);
  for (const std::filesystem::path& place : folders) {
    const std::filesystem::path path = place / receipt_file_name(id);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    try {
      QualificationReceipt receipt = read_qualification_receipt(path);
      if (receipt.pass && receipt.model == id && receipt.contract_version == kNumericContractVersion)
        return receipt;
    } catch (const Error& error) {
      warnings.push_back(fmt::format("{}; the receipt is ignored", error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace mererun
