#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace mererun {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  State() {
    if (context == nullptr)
      throw Error(ErrorCode::kOutOfMemory, "SHA-256: expected memory for its state, got none");
    start();
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void start() { check(EVP_DigestInit_ex(context, EVP_sha256(), nullptr)); }
  // The library refuses only when it was built or configured without SHA-256.
  static void check(int ok) {
    if (ok != 1)
      throw Error(ErrorCode::kUnsupported, "SHA-256: expected libcrypto to provide it, got a refusal");
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  State::check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<std::uint8_t, 32> Sha256::finish() {
  std::array<std::uint8_t, 32> digest{};
  State::check(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr));
  state_->start();
  return digest;
}

std::string Sha256::finish_hex() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::uint8_t byte : finish()) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_hex();
}

std::string sha256_hex(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace mererun
