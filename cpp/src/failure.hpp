// Errors inside the library: which rule, which value, what would work.  The C functions hand them out by tw_last_error.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace tw {
namespace runtime {

struct Failure : std::runtime_error {
  std::string owner, rule, value, remedy;
  Failure(std::string owner_, std::string rule_, std::string value_, const std::string &message, std::string remedy_)
      : std::runtime_error(message),
        owner(std::move(owner_)),
        rule(std::move(rule_)),
        value(std::move(value_)),
        remedy(std::move(remedy_)) {}
};

inline Failure bad_request(std::string rule, std::string value, const std::string &message, std::string remedy) {
  return Failure("request", std::move(rule), std::move(value), message, std::move(remedy));
}
inline Failure bad_machine(std::string rule, std::string value, const std::string &message, std::string remedy) {
  return Failure("machine", std::move(rule), std::move(value), message, std::move(remedy));
}

}  // namespace runtime
}  // namespace tw
