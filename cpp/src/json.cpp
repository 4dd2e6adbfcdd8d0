#include "json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_set>

#include "failure.hpp"

namespace tw {
namespace runtime {
namespace {

constexpr int kMostNested = 64;
const char *const kKinds[] = {"null", "a switch", "a whole number", "a number", "a text", "a list", "an object"};

class Reader {
 public:
  Reader(const std::string &text, const std::string &what) : text_(text), what_(what) {}

  Json whole() {
    Json value = read(0);
    blanks();
    if (at_ != text_.size()) fail("there is more behind its end");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string &why) const {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    throw bad_request("json", "line " + std::to_string(line), what_ + ", line " + std::to_string(line) + ": " + why,
                      "write it again with Registry.to_json() or Registry.export()");
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void blanks() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_]) ++at_;
  }
  void expect(char c) {
    if (peek() != c || at_ >= text_.size()) fail(std::string("'") + c + "' is missing");
    ++at_;
  }
  bool word(const char *letters) {
    const size_t length = std::strlen(letters);
    if (text_.compare(at_, length, letters) != 0) return false;
    at_ += length;
    return true;
  }

  Json read(int depth) {
    if (depth > kMostNested) fail("it is nested deeper than " + std::to_string(kMostNested) + " levels");
    blanks();
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
        return Json(text());
      default:
        break;
    }
    if (word("true")) return Json(true);
    if (word("false")) return Json(false);
    if (word("null")) return Json();
    return number();
  }

  Json object(int depth) {
    Json made = Json::object();
    std::unordered_set<std::string> seen;
    expect('{');
    blanks();
    if (peek() == '}') return ++at_, made;
    for (;;) {
      blanks();
      std::string name = text();
      if (!seen.insert(name).second) fail("'" + name + "' is there twice");
      blanks();
      expect(':');
      made.set(std::move(name), read(depth + 1));
      blanks();
      if (peek() == '}') return ++at_, made;
      expect(',');
    }
  }

  Json list(int depth) {
    Json made = Json::list();
    expect('[');
    blanks();
    if (peek() == ']') return ++at_, made;
    for (;;) {
      made.push(read(depth + 1));
      blanks();
      if (peek() == ']') return ++at_, made;
      expect(',');
    }
  }

  unsigned four_digits() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("four digits are missing behind \\u");
      code = code * 16 + unsigned(digit);
    }
    return code;
  }

  void escaped(std::string &into) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    if (c != 'u') {
      const char *place = c ? std::strchr(letters, c) : nullptr;
      if (!place) fail("an escape that JSON does not have");
      into += means[place - letters];
      return;
    }
    unsigned code = four_digits();
    if (code >= 0xd800 && code < 0xdc00) {
      if (!word("\\u")) fail("half of a surrogate pair");
      const unsigned low = four_digits();
      if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      fail("half of a surrogate pair");
    }
    if (code < 0x80) {
      into += char(code);
    } else if (code < 0x800) {
      into += char(0xc0 | code >> 6), into += char(0x80 | (code & 63));
    } else if (code < 0x10000) {
      into += char(0xe0 | code >> 12), into += char(0x80 | (code >> 6 & 63)), into += char(0x80 | (code & 63));
    } else {
      into += char(0xf0 | code >> 18), into += char(0x80 | (code >> 12 & 63));
      into += char(0x80 | (code >> 6 & 63)), into += char(0x80 | (code & 63));
    }
  }

  std::string text() {
    std::string made;
    expect('"');
    for (;;) {
      if (at_ >= text_.size()) fail("a text does not end");
      const char c = text_[at_++];
      if (c == '"') return made;
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a text");
      if (c == '\\') escaped(made);
      else made += c;
    }
  }

  bool digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start;
  }

  Json number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    const bool zero = peek() == '0';
    const size_t first = at_;
    if (!digits() || (zero && at_ - first > 1)) fail("this is no JSON");
    bool whole = true;
    if (peek() == '.') {
      ++at_, whole = false;
      if (!digits()) fail("digits are missing behind a point");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_, whole = false;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) fail("digits are missing in an exponent");
    }
    const char *begin = text_.data() + start, *end = text_.data() + at_;
    int64_t integer = 0;
    if (whole && std::from_chars(begin, end, integer).ec == std::errc()) return Json(integer);
    double real = 0;
#if defined(__cpp_lib_to_chars)
    const bool read = std::from_chars(begin, end, real).ec == std::errc();
#else
    real = std::strtod(std::string(begin, end).c_str(), nullptr);
    const bool read = true;
#endif
    if (!read || !std::isfinite(real)) fail("a number that no double holds");
    return Json(real);
  }

  const std::string &text_;
  const std::string &what_;
  size_t at_ = 0;
};

void write_text(const std::string &text, std::string &into) {
  char code[16];
  into += '"';
  for (size_t at = 0; at < text.size(); ++at) {
    const unsigned char c = static_cast<unsigned char>(text[at]);
    if (c == '"' || c == '\\') {
      into += '\\', into += char(c);
    } else if (c == '\n') {
      into += "\\n";
    } else if (c == '\t') {
      into += "\\t";
    } else if (c == '\r') {
      into += "\\r";
    } else if (c < 0x20) {
      std::snprintf(code, sizeof code, "\\u%04x", c), into += code;
    } else if (c < 0x80) {
      into += char(c);
    } else {
      const int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
      unsigned point = c & (0x3f >> more);
      for (int i = 0; i < more && at + 1 < text.size(); ++i)
        point = point << 6 | (static_cast<unsigned char>(text[++at]) & 63);
      if (point >= 0x10000) {
        point -= 0x10000;
        std::snprintf(code, sizeof code, "\\u%04x", 0xd800 + (point >> 10)), into += code;
        point = 0xdc00 + (point & 0x3ff);
      }
      std::snprintf(code, sizeof code, "\\u%04x", point), into += code;
    }
  }
  into += '"';
}

void write_real(double value, std::string &into) {
  char digits[40];
#if defined(__cpp_lib_to_chars)
  *std::to_chars(digits, digits + sizeof digits - 1, value).ptr = 0;
#else
  std::snprintf(digits, sizeof digits, "%.17g", value);
#endif
  into += digits;
  if (!std::strpbrk(digits, ".e")) into += ".0";  // it stays a number that is not whole
}

}  // namespace

Json Json::parse(const std::string &text, const std::string &what) { return Reader(text, what).whole(); }

const Json *Json::find(const std::string &name) const {
  for (const auto &member : members_)
    if (member.first == name) return &member.second;
  return nullptr;
}

const Json &Json::at(const std::string &name, const std::string &what) const {
  need(Kind::object, what);
  if (const Json *value = find(name)) return *value;
  throw bad_request("json-field", name, what + " has no '" + name + "'", "write it again with Registry.to_json()");
}

const Json &Json::need(Kind kind, const std::string &what) const {
  if (kind_ == kind) return *this;
  throw bad_request("json-field", what, what + " is " + kKinds[int(kind_)] + ", not " + kKinds[int(kind)],
                    "write it again with Registry.to_json()");
}

std::string Json::written() const {
  std::string into;
  write(into);
  return into;
}

void Json::write(std::string &into) const {
  switch (kind_) {
    case Kind::null:
      into += "null";
      break;
    case Kind::boolean:
      into += integer_ ? "true" : "false";
      break;
    case Kind::integer:
      into += std::to_string(integer_);
      break;
    case Kind::real:
      write_real(real_, into);
      break;
    case Kind::text:
      write_text(text_, into);
      break;
    case Kind::list:
      into += '[';
      for (size_t i = 0; i < items_.size(); ++i) {
        if (i) into += ',';
        items_[i].write(into);
      }
      into += ']';
      break;
    case Kind::object: {
      std::vector<const std::pair<std::string, Json> *> sorted;
      for (const auto &member : members_) sorted.push_back(&member);
      std::sort(sorted.begin(), sorted.end(), [](const auto *a, const auto *b) { return a->first < b->first; });
      into += '{';
      for (size_t i = 0; i < sorted.size(); ++i) {
        if (i) into += ',';
        write_text(sorted[i]->first, into);
        into += ':';
        sorted[i]->second.write(into);
      }
      into += '}';
    }
  }
}

}  // namespace runtime
}  // namespace tw
