// JSON: a strict reader and a canonical writer (names sorted, no blanks, ASCII), which writes what Python's writes.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tw {
namespace runtime {

class Json {
 public:
  enum class Kind { null, boolean, integer, real, text, list, object };
  using Members = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  explicit Json(bool value) : kind_(Kind::boolean), integer_(value) {}
  explicit Json(int64_t value) : kind_(Kind::integer), integer_(value) {}
  explicit Json(double value) : kind_(Kind::real), real_(value) {}
  explicit Json(std::string value) : kind_(Kind::text), text_(std::move(value)) {}
  static Json list() { return Json(Kind::list); }
  static Json object() { return Json(Kind::object); }

  // `what` names the text in errors.  A name that is there twice, an unknown escape, depth beyond 64: all are errors.
  static Json parse(const std::string &text, const std::string &what);
  std::string written() const;

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  // Each is an error where the value is of another kind; `what` names it.
  bool boolean(const std::string &what) const { return need(Kind::boolean, what).integer_ != 0; }
  int64_t integer(const std::string &what) const { return need(Kind::integer, what).integer_; }
  double real(const std::string &what) const {
    return kind_ == Kind::integer ? double(integer_) : need(Kind::real, what).real_;
  }
  const std::string &text(const std::string &what) const { return need(Kind::text, what).text_; }
  const std::vector<Json> &items(const std::string &what) const { return need(Kind::list, what).items_; }
  const Members &members(const std::string &what) const { return need(Kind::object, what).members_; }
  const Json *find(const std::string &name) const;                         // null where there is none
  const Json &at(const std::string &name, const std::string &what) const;  // an error where there is none

  void push(Json item) { items_.push_back(std::move(item)); }
  void set(std::string name, Json value) { members_.emplace_back(std::move(name), std::move(value)); }

 private:
  explicit Json(Kind kind) : kind_(kind) {}
  const Json &need(Kind kind, const std::string &what) const;
  void write(std::string &into) const;

  Kind kind_ = Kind::null;
  int64_t integer_ = 0;
  double real_ = 0;
  std::string text_;
  std::vector<Json> items_;
  Members members_;
};

}  // namespace runtime
}  // namespace tw
