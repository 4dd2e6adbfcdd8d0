// The JSON reader and writer, and SHA-256, from inside the library.
#include <cstdio>
#include <string>

#include "failure.hpp"
#include "json.hpp"
#include "sha256.hpp"

using tw::runtime::Json;

static int failed = 0;

static void same(const std::string &text, const std::string &canonical) {
  const std::string written = Json::parse(text, "a test").written();
  if (written != canonical)
    std::printf("%s became %s, not %s\n", text.c_str(), written.c_str(), canonical.c_str()), ++failed;
}

static void refused(const std::string &text) {
  try {
    Json::parse(text, "a test");
  } catch (const tw::runtime::Failure &failure) {
    if (failure.rule != "json") std::printf("%s broke the rule %s\n", text.c_str(), failure.rule.c_str()), ++failed;
    return;
  }
  std::printf("%s was taken\n", text.c_str()), ++failed;
}

int main() {
  same(" { \"b\" : [ 1 , -2 , true ] , \"a\" : null } ", "{\"a\":null,\"b\":[1,-2,true]}");
  same("\"\\u00e9\\ud83d\\ude00\\n\\\"\"", "\"\\u00e9\\ud83d\\ude00\\n\\\"\"");
  same("\"\xc3\xa9\"", "\"\\u00e9\"");
  same("[1.5, 2.0, 1e-05]", "[1.5,2.0,1e-05]");
  same("9223372036854775807", "9223372036854775807");
  same("{}", "{}"), same("[]", "[]");
  for (const char *text : {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "01", "1.", "1e", "nul", "\"\\x\"", "\"\\ud800\"",
                           "\"a", "[1] 2", "{\"a\" 1}", "'a'", "1e999", "\"\n\"", "NaN"})
    refused(text);
  refused(std::string(100, '[') + std::string(100, ']'));
  if (tw::runtime::sha256_hex("abc") != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    std::puts("sha256 of abc"), ++failed;
  if (tw::runtime::sha256_hex("") != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    std::puts("sha256 of nothing"), ++failed;
  std::printf("json: %d failed\n", failed);
  return failed ? 1 : 0;
}
