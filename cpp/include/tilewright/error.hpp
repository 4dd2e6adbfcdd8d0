// Errors: who can mend it, which rule spoke, which value broke it, what would work.
#pragma once
#include <tilewright/runtime.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tw {

class Error : public std::runtime_error {
 public:
  Error(std::string owner, std::string rule, std::string value, const std::string &message, std::string remedy)
      : std::runtime_error("[" + rule + "] " + message + (remedy.empty() ? "" : "\n  remedy: " + remedy)),
        owner_(std::move(owner)),
        rule_(std::move(rule)),
        value_(std::move(value)),
        message_(message),
        remedy_(std::move(remedy)) {}
  const std::string &owner() const { return owner_; }  // "request", "machine" or "tilewright"
  const std::string &rule() const { return rule_; }
  const std::string &value() const { return value_; }
  const std::string &message() const { return message_; }
  const std::string &remedy() const { return remedy_; }

 private:
  std::string owner_, rule_, value_, message_, remedy_;
};

namespace detail {

inline Error request_error(const char *rule, const std::string &value, const std::string &message,
                           const std::string &remedy) {
  return Error("request", rule, value, message, remedy);
}

// The runtime's error, thrown.
inline void demand(int status) {
  if (status == 0) return;
  const tw_error *error = tw_last_error();
  throw Error(error->owner, error->rule, error->value, error->message, error->remedy);
}

// Another runtime than this program was compiled for: another major version, or an older minor one.
inline void demand_runtime() {
  const int64_t version = tw_runtime_version();
  if (version >> 16 == TW_RUNTIME_MAJOR && (version & 0xffff) >= TW_RUNTIME_MINOR) return;
  const std::string found = std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
  const std::string mine = std::to_string(TW_RUNTIME_MAJOR) + "." + std::to_string(TW_RUNTIME_MINOR);
  throw Error("machine", "runtime-version", found,
              "libtilewright has version " + found + ", and this program was compiled for " + mine,
              "use a libtilewright of version " + mine + " or a later one with the same first number");
}

}  // namespace detail
}  // namespace tw
