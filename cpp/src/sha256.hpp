// SHA-256: digests of specs and of files.
#pragma once
#include <string>

namespace tw {
namespace runtime {

std::string sha256_hex(const std::string &bytes);

}  // namespace runtime
}  // namespace tw
