// Grouped convolution in one to three dimensions: y = epilogue(conv(x, w), D0, D1), and its gradients for x and for w.
#pragma once
#include <tilewright/conv_args.h>
#include <tilewright/copies.hpp>
#include <tilewright/plan_key.hpp>
#include <tilewright/problem.hpp>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace tw {

enum class ConvDirection { forward, backward_data, backward_weight };

// Addresses and strides of the operands of a convolution.  Which of x, w and y is written follows from the direction.
struct ConvOperands {
  void *x_at = nullptr, *w_at = nullptr, *y_at = nullptr;
  const void *d_at[TW_CONV_MAX_D] = {};
  bool d_full[TW_CONV_MAX_D] = {};
  int64_t count_d = 0;

  ConvOperands &x(const void *at) { return x_at = const_cast<void *>(at), *this; }
  ConvOperands &w(const void *at) { return w_at = const_cast<void *>(at), *this; }
  ConvOperands &y(const void *at) { return y_at = const_cast<void *>(at), *this; }
  // The next D tensor: one number a filter, or one as large as y and laid out as dense y is.
  ConvOperands &bias(const void *at) { return d(at, false); }
  ConvOperands &residual(const void *at) { return d(at, true); }

 private:
  ConvOperands &d(const void *at, bool full) {
    if (count_d >= TW_CONV_MAX_D)
      throw detail::request_error("epilogue-d-count", std::to_string(count_d + 1), "more D tensors than kernels take",
                                  "give at most " + std::to_string(TW_CONV_MAX_D));
    d_at[count_d] = at, d_full[count_d] = full;
    return ++count_d, *this;
  }
};

// Channels and filters are totals over all groups.  Memory is channels-last (x: image, spatial, channel; w: filter,
// spatial, channel of a group) unless strides, in elements and in that order, say otherwise.
class ConvProblem {
 public:
  using Operands = ConvOperands;
  using Sizes = std::vector<int64_t>;

  ConvProblem(int64_t batch, int64_t channels, int64_t filters, Sizes size, Sizes window)
      : batch_(batch), channels_(channels), filters_(filters), size_(std::move(size)), window_(std::move(window)) {
    stride_ = dilation_ = Sizes(size_.size(), 1);
    before_ = after_ = Sizes(size_.size(), 0);
  }

  ConvProblem &direction(ConvDirection which) { return direction_ = which, *this; }
  ConvProblem &groups(int64_t count) { return groups_ = count, *this; }
  ConvProblem &stride(Sizes steps) { return stride_ = std::move(steps), *this; }
  ConvProblem &dilation(Sizes steps) { return dilation_ = std::move(steps), *this; }
  ConvProblem &padding(Sizes both) { return before_ = after_ = std::move(both), *this; }
  ConvProblem &padding(Sizes before, Sizes after) {
    return before_ = std::move(before), after_ = std::move(after), *this;
  }
  ConvProblem &dtype(Dtype type) { return dtype_ = type, *this; }
  ConvProblem &dtype_out(Dtype type) { return out_ = type, has_out_ = true, *this; }
  ConvProblem &dtype_d(Dtype type) { return d_ = type, has_d_ = true, *this; }
  // `full_d` of the D tensors are as large as y; the others are one number a filter.
  ConvProblem &epilogue(Epilogue what, int64_t num_d = 0, int64_t full_d = 0) {
    return epilogue_ = what, num_d_ = num_d, full_d_ = full_d, *this;
  }
  ConvProblem &deterministic(bool same_bits = true) { return deterministic_ = same_bits, *this; }
  ConvProblem &x_strides(Sizes elements) { return x_strides_ = std::move(elements), *this; }
  ConvProblem &w_strides(Sizes elements) { return w_strides_ = std::move(elements), *this; }
  ConvProblem &y_strides(Sizes elements) { return y_strides_ = std::move(elements), *this; }
  ConvProblem &aligned(bool to_16_bytes) { return aligned_ = to_16_bytes, *this; }

  int64_t batch() const { return batch_; }
  int64_t channels() const { return channels_; }
  int64_t filters() const { return filters_; }
  int64_t groups() const { return groups_; }
  int64_t group_channels() const { return channels_ / (groups_ > 1 ? groups_ : 1); }
  int64_t group_filters() const { return filters_ / (groups_ > 1 ? groups_ : 1); }
  ConvDirection direction() const { return direction_; }
  Dtype dtype() const { return dtype_; }
  Dtype dtype_out() const { return has_out_ ? out_ : dtype_ == Dtype::int8 ? Dtype::int32 : dtype_; }
  Dtype dtype_d() const { return has_d_ ? d_ : dtype_out(); }
  Epilogue epilogue() const { return epilogue_; }
  int64_t num_d() const { return num_d_; }
  const Sizes &size() const { return size_; }
  const Sizes &window() const { return window_; }
  const Sizes &stride() const { return stride_; }
  const Sizes &dilation() const { return dilation_; }
  const Sizes &before() const { return before_; }
  const Sizes &after() const { return after_; }
  Sizes out() const {  // 0 where the window does not fit
    demand_ranks();
    Sizes pixels;
    for (size_t i = 0; i < size_.size(); ++i) {
      const int64_t sizes[] = {size_[i], window_[i], before_[i], after_[i]};
      const bool sane =
          window_[i] > 0 && std::all_of(sizes, sizes + 4, [](int64_t size) { return size >= 0 && size <= kMost; });
      const int64_t padded = sane ? size_[i] + before_[i] + after_[i] : 0;
      const int64_t dilation = dilation_[i] > 1 ? dilation_[i] : 1;
      const bool fits = padded > 0 && window_[i] - 1 <= (padded - 1) / dilation;
      const int64_t room = fits ? padded - (window_[i] - 1) * dilation - 1 : 0;
      pixels.push_back(fits ? room / (stride_[i] > 1 ? stride_[i] : 1) + 1 : 0);
    }
    return pixels;
  }
  Sizes x_shape() const { return shape(batch_, size_, channels_); }
  Sizes w_shape() const { return shape(filters_, window_, group_channels()); }
  double flops() const {  // of every direction
    return 2.0 * double(batch_) * double(product(out())) * double(filters_) * double(group_channels()) *
           double(product(window_));
  }
  // Each operand read once, the result written once.
  double bytes() const {
    using Real = long double;
    const Real x = Real(batch_) * Real(channels_) * product(size_), y = Real(batch_) * Real(filters_) * product(out()),
               w = Real(filters_) * Real(group_channels()) * product(window_);
    const Real written = direction_ == ConvDirection::backward_data     ? x
                         : direction_ == ConvDirection::backward_weight ? w
                                                                        : y;
    const Real d = Real(full_d_) * y + (Real(num_d_) - Real(full_d_)) * Real(filters_);
    return double((x + w + y - written) * Real(bytes_of(dtype_)) + written * Real(bytes_of(dtype_out())) +
                  d * Real(bytes_of(dtype_d())));
  }
  Sizes y_shape() const { return shape(batch_, out(), filters_); }
  Sizes x_strides() const { return x_strides_.empty() ? dense(x_shape()) : x_strides_; }
  Sizes w_strides() const { return w_strides_.empty() ? dense(w_shape()) : w_strides_; }
  Sizes y_strides() const { return y_strides_.empty() ? dense(y_shape()) : y_strides_; }

  // Throws the rule that the problem breaks.
  void check() const {
    const size_t count = size_.size();
    demand_types();
    demand_ranks();
    detail::demand_size("batch", batch_, 0, kMost), detail::demand_size("channels", channels_, 1, kMost);
    detail::demand_size("filters", filters_, 1, kMost), detail::demand_size("groups", groups_, 1, kMost);
    for (size_t i = 0; i < count; ++i) {
      detail::demand_size("size", size_[i], 1, kMost), detail::demand_size("window", window_[i], 1, kMost);
      detail::demand_size("stride", stride_[i], 1, kMost), detail::demand_size("dilation", dilation_[i], 1, kMost);
      for (int64_t padding : {before_[i], after_[i]}) {
        if (padding < 0)
          throw detail::request_error("padding-negative", std::to_string(padding),
                                      "a padding is " + std::to_string(padding), "use 0 or more, and cut x");
        detail::demand_size("padding", padding, 0, kMost);
      }
    }
    if (channels_ % groups_ || filters_ % groups_)
      throw detail::request_error("groups-divide", std::to_string(groups_),
                                  std::to_string(groups_) + " groups do not divide the channels and filters",
                                  "use a divisor of both");
    const Sizes pixels_out = out();
    for (int64_t pixels : pixels_out)
      if (pixels == 0)
        throw detail::request_error("window-fits", "0", "the window does not fit the padded input",
                                    "use a smaller window, or more padding");
    const auto written = [this](ConvDirection which) { return direction_ == which; };
    demand_memory("x", x_shape(), x_strides_, written(ConvDirection::backward_data));
    demand_memory("w", w_shape(), w_strides_, written(ConvDirection::backward_weight));
    demand_memory("y", shape(batch_, pixels_out, filters_), y_strides_, written(ConvDirection::forward));
    if (dtype_ == Dtype::int8 && direction_ != ConvDirection::forward)
      throw detail::request_error("dtype-input", "int8", std::string("int8 has no ") + variant(),
                                  "use forward, or fp32, fp16 or bf16");
    detail::demand_results(dtype_, dtype_out(), num_d_, dtype_d());
  }

  // `with_text`: with the message for people, and checked first; without: as selection asks, which has checked it.
  Described described(bool with_text = true) const {
    if (with_text) check();
    static const char *const names[] = {
        "variant",    "dims",         "batch",    "channels", "filters",   "groups",   "size_0",   "size_1",
        "size_2",     "window_0",     "window_1", "window_2", "stride_0",  "stride_1", "stride_2", "dilation_0",
        "dilation_1", "dilation_2",   "before_0", "before_1", "before_2",  "after_0",  "after_1",  "after_2",
        "out_0",      "out_1",        "out_2",    "x_image",  "x_0",       "x_1",      "x_2",      "x_channel",
        "w_filter",   "w_0",          "w_1",      "w_2",      "w_channel", "y_image",  "y_0",      "y_1",
        "y_2",        "y_channel",    "size",     "size_out", "size_d",    "num_d",    "full_d",   "plain",
        "aligned",    "deterministic"};
    std::optional<ConvProblem> other;
    const ConvProblem &p = joined(other);
    return {"conv",    signature(), with_text ? text() : std::string(), names, p.numbers(), p.bytes(),
            p.flops(), p.family()};
  }
  // As Python's lock files call it.
  const char *family() const {
    demand_ranks();
    const auto most = [](const Sizes &sizes) { return *std::max_element(sizes.begin(), sizes.end()); };
    if (groups_ > 1) return group_channels() == 1 ? "depthwise" : "grouped";
    if (channels_ <= 4) return "first";
    if (channels_ % 2 && filters_ % 2) return "odd";
    if (most(dilation_) > 1) return "dilated";
    if (most(window_) == 1) return "pointwise";
    return most(stride_) > 1 ? "strided" : "window";
  }

  static const char *table_at(size_t, size_t) { return "an operand"; }  // by its index in the arguments: there is none

  // What a plan depends on.
  detail::PlanKey key() const {
    detail::PlanKey key(2);
    key.add(batch_, channels_, filters_, groups_, num_d_, full_d_, int64_t(direction_), int64_t(dtype_),
            int64_t(dtype_out()), int64_t(dtype_d()), int64_t(epilogue_), deterministic_, aligned_);
    for (const Sizes *sizes : {&size_, &window_, &stride_, &dilation_, &before_, &after_}) key.add(*sizes);
    for (const Sizes *strides : {&x_strides_, &w_strides_, &y_strides_}) key.add(*strides);
    return key;
  }
  // One kernel, and nothing between stages.
  std::vector<Described> stages() const { return detail::one_stage(described(false)); }
  // The problem whose pins and measurements this one shares: dense, where channels are contiguous.
  std::vector<int64_t> measured(size_t) const {
    std::optional<ConvProblem> other;
    ConvProblem p = joined(other);
    const auto last = [](const Sizes &strides) { return strides.back() == 1; };
    if (last(p.x_strides()) && last(p.w_strides()) && last(p.y_strides()))
      p.x_strides_.clear(), p.w_strides_.clear(), p.y_strides_.clear(), p.aligned_ = true;
    return p.joined(other).numbers();
  }
  static int64_t between_bytes() { return 0; }
  template <class Use> void with_args(size_t, const ConvOperands &operands, char *, Use use) const {
    const tw_conv_args arguments = args(operands);
    use(&arguments);
  }

  // The problem that a kernel serves in dense channels-last copies of operands of another layout.  `layouts`: one number,
  // whether operands whose channels are not contiguous are copied too.  Negative strides are not copied.
  std::optional<ConvProblem> in_copies(const std::vector<int64_t> &layouts) const {
    if (layouts.size() != 1) return std::nullopt;
    std::optional<ConvProblem> other;
    ConvProblem p = joined(other);
    bool lies_so = aligned_;
    for (size_t at = 0; at < 3; ++at) {
      const Sizes strides = p.strides_of(at);
      if (*std::min_element(strides.begin(), strides.end()) < 0) return std::nullopt;
      if (strides.back() != 1 && !layouts[0]) return std::nullopt;
      lies_so = lies_so && strides == dense(p.shape_of(at));
    }
    if (lies_so) return std::nullopt;
    p.x_strides_.clear(), p.w_strides_.clear(), p.y_strides_.clear();
    return p.aligned_ = true, p.whole_windows_ = true, p;
  }
  // Operands 0 to 2 are x, w and y; D tensors are in the layout that kernels read.
  std::vector<detail::Copied> copies(const ConvProblem &larger, const ConvOperands &o) const {
    std::optional<ConvProblem> other;
    const ConvProblem &p = joined(other);
    void *const places[] = {o.x_at, o.w_at, o.y_at};
    const size_t result = direction_ == ConvDirection::forward ? 2 : direction_ == ConvDirection::backward_data ? 0 : 1;
    std::vector<detail::Copied> all;
    for (size_t at = 0; at < 3; ++at) {
      Sizes strides = p.strides_of(at);
      if (!places[at] || (aligned_ && strides == larger.strides_of(at))) continue;
      const bool written = at == result;
      all.push_back({int(at), places[at], written, bytes_of(written ? dtype_out() : dtype_), p.shape_of(at),
                     std::move(strides), larger.shape_of(at)});
    }
    return all;
  }
  static void put_copy(ConvOperands &o, int operand, void *at) {
    (operand == 0 ? o.x_at : operand == 1 ? o.w_at : o.y_at) = at;
  }

  tw_conv_args args(const ConvOperands &o) const {
    if (o.count_d != num_d_)
      throw detail::request_error(
          "epilogue-d-count", std::to_string(o.count_d),
          std::to_string(o.count_d) + " D tensors, and the problem says " + std::to_string(num_d_),
          "give as many as the problem's epilogue() says");
    int64_t full = 0;
    const char *missing = !o.x_at ? "x" : !o.w_at ? "w" : !o.y_at ? "y" : nullptr;
    for (int64_t i = 0; i < num_d_; ++i) {
      full += o.d_full[i];
      if (!missing && !o.d_at[i]) missing = o.d_full[i] ? "residual" : "bias";
    }
    if (full != full_d_)
      throw detail::request_error(
          "full-d", std::to_string(full),
          std::to_string(full) + " residuals are given, and the problem says " + std::to_string(full_d_),
          "name them in epilogue(what, num_d, full_d), or give others with bias()");
    if (batch_ && missing)
      throw detail::request_error("operand-missing", missing,
                                  std::string("the problem has an operand ") + missing + ", and it is null",
                                  std::string("give it with ConvOperands::") + missing + "()");
    if (batch_) demand_result_apart(o);
    std::optional<ConvProblem> other;
    const ConvProblem &p = joined(other);
    tw_conv_args a{};
    a.batch = p.batch_, a.groups = p.groups_, a.channels = p.group_channels(), a.filters = p.group_filters();
    put(a.size, p.size_, 1), put(a.window, p.window_, 1), put(a.out, p.out(), 1);
    put(a.stride, p.stride_, 1), put(a.dilation, p.dilation_, 1), put(a.before, p.before_, 0);
    put(a.x_strides, five(p.x_shape(), p.x_strides())), put(a.w_strides, five(p.w_shape(), p.w_strides()));
    put(a.y_strides, five(p.y_shape(), p.y_strides()));
    a.x = o.x_at, a.w = o.w_at, a.y = o.y_at;
    for (int64_t i = 0; i < num_d_; ++i) {
      a.d[i] = o.d_at[i];
      Sizes strides(size_.size() + 2, 0);
      strides.back() = 1;
      if (o.d_full[i]) strides = dense(p.y_shape());
      a.d_strides[i][0] = strides[0];
      for (size_t at = 1; at < strides.size(); ++at)
        a.d_strides[i][TW_CONV_SPATIAL + 2 - strides.size() + at] = strides[at];
    }
    return a;
  }

 private:
  static constexpr int64_t kMost = int64_t(1) << 40;  // of every size
  // By the names that `described` gives them.
  std::vector<int64_t> numbers() const {
    std::vector<int64_t> v;
    v.reserve(50);
    append(v, {int64_t(direction_), int64_t(size_.size()), batch_, channels_, filters_, groups_});
    three(v, size_, 1), three(v, window_, 1), three(v, stride_, 1), three(v, dilation_, 1);
    three(v, before_, 0), three(v, after_, 0), three(v, out(), 1);
    with_image(v, x_strides()), with_image(v, w_strides()), with_image(v, y_strides());
    append(v, {bytes_of(dtype_), bytes_of(dtype_out()), bytes_of(dtype_d()), num_d_, full_d_,
               num_d_ == 0 && epilogue_ == Epilogue::none, aligned_, deterministic_});
    return v;
  }
  // Of x, w and y, by their indices.
  Sizes shape_of(size_t at) const { return at == 0 ? x_shape() : at == 1 ? w_shape() : y_shape(); }
  Sizes strides_of(size_t at) const { return at == 0 ? x_strides() : at == 1 ? w_strides() : y_strides(); }
  static long double product(const Sizes &sizes) {
    long double elements = 1;
    for (int64_t size : sizes) elements *= static_cast<long double>(size);
    return elements;
  }
  void demand_result_apart(const ConvOperands &o) const {
    const auto apart = [](const char *result, const void *at, const char *first, const void *one, const char *second,
                          const void *two) { detail::demand_apart_from(result, at, {{first, one}, {second, two}}); };
    if (direction_ == ConvDirection::forward) apart("y", o.y_at, "x", o.x_at, "w", o.w_at);
    else if (direction_ == ConvDirection::backward_data) apart("x", o.x_at, "y", o.y_at, "w", o.w_at);
    else apart("w", o.w_at, "x", o.x_at, "y", o.y_at);
  }
  void demand_types() const {
    if (direction_ < ConvDirection::forward || direction_ > ConvDirection::backward_weight)
      throw detail::request_error("direction-name", std::to_string(int(direction_)),
                                  "no direction has the number " + std::to_string(int(direction_)),
                                  "use one of tw::ConvDirection");
    const bool known = dtype_ == Dtype::fp32 || dtype_ == Dtype::fp16 || dtype_ == Dtype::bf16 || dtype_ == Dtype::int8;
    if (!known)
      throw detail::request_error("dtype-input", name_of(dtype_),
                                  std::string(name_of(dtype_)) + " is not an input type",
                                  "use fp32, fp16, bf16 or int8");
    detail::demand_epilogue(epilogue_, num_d_, false, TW_CONV_MAX_D);
    if (direction_ != ConvDirection::forward && (epilogue_ != Epilogue::none || num_d_))
      throw detail::request_error("fused-backward", name_of(epilogue_), "only forward has fused work",
                                  "use Epilogue::none, and do the rest apart");
    if (full_d_ < 0 || full_d_ > num_d_)
      throw detail::request_error(
          "full-d", std::to_string(full_d_),
          std::to_string(full_d_) + " of " + std::to_string(num_d_) + " D tensors are as large as y",
          "use 0 to " + std::to_string(num_d_));
  }
  void demand_ranks() const {
    const size_t count = size_.size();
    if (count < 1 || count > TW_CONV_SPATIAL)
      throw detail::request_error("spatial-rank", std::to_string(count), std::to_string(count) + " spatial dimensions",
                                  "use 1, 2 or 3");
    const std::pair<const char *, const Sizes *> several[] = {{"window", &window_},
                                                              {"stride", &stride_},
                                                              {"dilation", &dilation_},
                                                              {"padding", &before_},
                                                              {"padding", &after_}};
    for (const auto &each : several)
      if (each.second->size() != count)
        throw detail::request_error("spatial-rank", std::to_string(each.second->size()),
                                    std::string("the ") + each.first + " has " + std::to_string(each.second->size()) +
                                        " numbers, and there are " + std::to_string(count) + " spatial dimensions",
                                    "give " + std::to_string(count));
    const std::pair<const char *, const Sizes *> operands[] = {
        {"x", &x_strides_}, {"w", &w_strides_}, {"y", &y_strides_}};
    for (const auto &each : operands)
      if (!each.second->empty() && each.second->size() != count + 2)
        throw detail::request_error(
            "stride-rank", std::to_string(each.second->size()),
            std::string(each.first) + " has " + std::to_string(each.second->size()) + " strides",
            "give " + std::to_string(count + 2) + ", or none if dense");
  }
  static void demand_memory(const char *name, const Sizes &shape, const Sizes &strides, bool written) {
    detail::demand_span(name, shape.data(), shape.size(), strides.empty() ? nullptr : strides.data());
    if (written && !strides.empty()) detail::demand_apart(name, shape.data(), shape.size(), strides.data());
  }
  static void append(Sizes &to, const Sizes &more) { to.insert(to.end(), more.begin(), more.end()); }
  static void append(Sizes &to, std::initializer_list<int64_t> more) { to.insert(to.end(), more.begin(), more.end()); }
  template <size_t N> static void put(int64_t (&into)[N], const Sizes &from, int64_t missing = 0) {
    const size_t ahead = N - from.size();
    for (size_t i = 0; i < N; ++i) into[i] = i < ahead ? missing : from[i - ahead];
  }
  static Sizes shape(int64_t first, const Sizes &spatial, int64_t last) {
    Sizes made = {first};
    append(made, spatial), made.push_back(last);
    return made;
  }
  static Sizes dense(const Sizes &shape) {
    Sizes strides(shape.size());
    uint64_t step = 1;  // of sizes that were not checked it goes round
    for (size_t i = shape.size(); i-- > 0; step *= uint64_t(shape[i] > 1 ? shape[i] : 1)) strides[i] = int64_t(step);
    return strides;
  }
  static void three(Sizes &to, const Sizes &sizes, int64_t missing) {
    to.insert(to.end(), TW_CONV_SPATIAL - sizes.size(), missing);
    append(to, sizes);
  }
  // Strides of axes that are added: for selection those of the image, for kernels what dense memory has.
  static void with_image(Sizes &to, const Sizes &strides) {
    to.insert(to.end(), TW_CONV_SPATIAL + 3 - strides.size(), strides[0]);
    to.insert(to.end(), strides.begin() + 1, strides.end());
  }
  static Sizes five(const Sizes &shape, const Sizes &strides) {
    Sizes made = {strides[0]};
    made.resize(TW_CONV_SPATIAL + 3 - strides.size(), strides[1] * (shape[1] > 1 ? shape[1] : 1));
    made.insert(made.end(), strides.begin() + 1, strides.end());
    return made;
  }
  // Windows side by side: a row of a patch as one pixel of more channels, where that makes whole vectors.
  // That problem is put into `other`; where nothing is joined, the answer is this one.
  const ConvProblem &joined(std::optional<ConvProblem> &other) const {
    const int64_t taps = window_.back(), element = bytes_of(dtype_);
    const bool patches = taps > 1 && groups_ == 1 && stride_.back() == taps && dilation_.back() == 1 &&
                         !before_.back() && !after_.back();
    if (whole_windows_ || !patches || channels_ * element % 16 == 0 || taps * channels_ * element % 16 ||
        size_.back() % taps)
      return *this;
    Sizes x = x_strides(), w = w_strides();
    const auto side_by_side = [this](const Sizes &strides) {
      return strides.back() == 1 && strides[strides.size() - 2] == channels_;
    };
    if (!side_by_side(x) || !side_by_side(w)) return *this;
    ConvProblem &p = other.emplace(*this);
    p.y_strides_ = y_strides();
    p.channels_ = taps * channels_;
    p.size_.back() /= taps, p.window_.back() = 1, p.stride_.back() = 1;
    x[x.size() - 2] = w[w.size() - 2] = p.channels_;
    p.x_strides_ = std::move(x), p.w_strides_ = std::move(w);
    return p;
  }
  const char *variant() const {
    static const char *const names[] = {"forward", "backward_data", "backward_weight"};
    return direction_ >= ConvDirection::forward && direction_ <= ConvDirection::backward_weight ? names[int(direction_)]
                                                                                                : "unknown";
  }
  std::string signature() const {
    return detail::Signature()
        .text("dtype", name_of(dtype_))
        .text("dtype_acc", name_of(accumulator(dtype_)))
        .text("dtype_d", name_of(num_d_ ? dtype_d() : dtype_out()))
        .text("dtype_out", name_of(dtype_out()))
        .text("epilogue", name_of(epilogue_))
        .number("num_d", num_d_)
        .number("spatial", size_.size() == 3 ? 3 : 2)
        .text("variant", variant())
        .done();
  }
  std::string text() const {
    std::string line = std::string("conv ") + variant() + " " + name_of(dtype_) + " n=" + std::to_string(batch_) +
                       " c=" + std::to_string(channels_) + " k=" + std::to_string(filters_);
    for (size_t i = 0; i < size_.size(); ++i) line += (i ? "x" : " ") + std::to_string(size_[i]);
    for (size_t i = 0; i < window_.size(); ++i) line += (i ? "x" : " window=") + std::to_string(window_[i]);
    return line;
  }

  int64_t batch_, channels_, filters_, groups_ = 1, num_d_ = 0, full_d_ = 0;
  Sizes size_, window_, stride_, dilation_, before_, after_, x_strides_, w_strides_, y_strides_;
  ConvDirection direction_ = ConvDirection::forward;
  Dtype dtype_ = Dtype::fp32, out_ = Dtype::fp32, d_ = Dtype::fp32;
  bool has_out_ = false, has_d_ = false, deterministic_ = false, aligned_ = true;
  bool whole_windows_ = false;  // rows of patches are not joined: kernels are asked about copies as they are made
  Epilogue epilogue_ = Epilogue::none;
};

}  // namespace tw
