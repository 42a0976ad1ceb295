// The text form of Graphs and Programs is parsed line by line.
#include "tests/graph/text_reader.h"

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "graph/op_table.h"
#include "graph/params.h"

namespace plimsoll {

namespace {

/// One line: words in order and key=value attributes; a word without '=' after the fixed ones is a
/// flag. Every attribute must be consumed.
class Line {
 public:
  Line(std::string_view text, const std::string& file, std::size_t number)
      : file_(file), number_(number) {
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) words_.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError(file_ + ":" + std::to_string(number_), "", printable(message, 240));
  }
  bool empty() const { return next_ >= words_.size(); }
  std::string word(const std::string& what) {
    if (empty()) fail("expected " + what + ", found the end of the line");
    return words_[next_++];
  }
  void expect(std::string_view keyword) {
    if (word("'" + std::string(keyword) + "'") != keyword)
      fail("expected '" + std::string(keyword) + "'");
  }
  /// Everything that is left, with single spaces.
  std::string rest() {
    std::string text;
    while (!empty()) text += (text.empty() ? "" : " ") + words_[next_++];
    return text;
  }
  bool starts_with(std::string_view keyword) const {
    return !words_.empty() && words_[0] == keyword;
  }
  /// "(%1, %2)" from here on.
  std::vector<TensorId> ids() {
    std::vector<TensorId> found;
    std::string text = word("'(' and tensors");
    while (text.back() != ')') text += word("')'");
    std::string_view rest = std::string_view(text).substr(1, text.size() - 2);
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      found.push_back(tensor(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return found;
  }
  /// Reads the remaining words as attributes and flags.
  void attributes() {
    while (!empty()) {
      const std::string text = word("attribute");
      const std::size_t equals = text.find('=');
      const std::string key = text.substr(0, equals);
      const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
      if (!attributes_.emplace(key, value).second) fail("attribute '" + key + "' twice");
    }
  }
  std::optional<std::string> take(std::string_view key) {
    const auto found = attributes_.find(key);
    if (found == attributes_.end()) return std::nullopt;
    std::string value = found->second;
    attributes_.erase(found);
    return value;
  }
  std::string need(std::string_view key) {
    if (auto value = take(key)) return *value;
    fail("attribute '" + std::string(key) + "' is missing");
  }
  void finish() const {
    if (!attributes_.empty()) fail("unknown attribute '" + attributes_.begin()->first + "'");
  }

  template <class Number>
  Number number(std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      fail("'" + std::string(text) + "' is not a number");
    }
    return value;
  }
  std::int64_t integer(std::string_view text) const { return number<std::int64_t>(text); }
  std::size_t index(std::string_view text) const { return number<std::size_t>(text); }
  std::int64_t need_integer(std::string_view key) { return integer(need(key)); }
  Bytes need_bytes(std::string_view key) { return Bytes(need_integer(key)); }
  TensorId tensor(std::string_view text) const {
    if (text.empty() || text.front() != '%') fail("'" + std::string(text) + "' is not a tensor");
    return TensorId(index(text.substr(1)));
  }
  template <class Value>
  Value known(const std::optional<Value>& value, std::string_view text) const {
    if (!value) fail("'" + std::string(text) + "' is unknown here");
    return *value;
  }
  /// The enumerator of a name, which is `last` or stands before it.
  template <class Enum>
  Enum named(std::string_view text, Enum last) const {
    for (std::size_t i = 0; i <= std::size_t(last); ++i)
      if (to_text(Enum(i)) == text) return Enum(i);
    fail("'" + std::string(text) + "' is unknown here");
  }

 private:
  const std::string& file_;
  std::size_t number_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;
  std::map<std::string, std::string, std::less<>> attributes_;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Shape parse_shape(const Line& line, std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') line.fail("expected [extents]");
  Shape shape;
  if (text.size() == 2) return shape;
  for (const std::string& part : split(text.substr(1, text.size() - 2), ',')) {
    shape.push_back(line.integer(part));
  }
  return shape;
}

template <class Layout>  // Tensor or Segment
void parse_layout(Line& line, Layout& layout) {
  if (const auto text = line.take("split")) {
    const auto parts = split(*text, ':');
    if (parts.size() < 3 || parts.size() > 6) {
      line.fail(
          "expected split=dim:axis:degree, then :copies, :padding and :experts if there are "
          "any");
    }
    layout.split = Split{line.integer(parts[0]),
                         line.named(parts[1], Axis::edp),
                         line.integer(parts[2]),
                         parts.size() > 3 ? line.integer(parts[3]) : 1,
                         parts.size() > 4 ? line.integer(parts[4]) : 0,
                         parts.size() > 5 ? line.integer(parts[5]) : 1};
  }
  if (const auto text = line.take("init")) layout.init = line.named(*text, Init::ones);
  if (const auto text = line.take("stddev")) layout.init_stddev = line.number<double>(*text);
  layout.decay = line.take("decay").has_value();
  layout.clip = !line.take("unclipped").has_value();
  if (const auto text = line.take("rate")) layout.rate = line.number<double>(*text);
  if (const auto text = line.take("weight_decay")) layout.weight_decay = line.number<double>(*text);
}

Grid parse_grid(Line line) {
  line.expect("grid");
  line.attributes();
  Grid grid;
  for (std::size_t axis = 0; axis < kRankAxes; ++axis) {
    grid.degree[axis] = line.need_integer(to_text(Axis(axis)));
  }
  for (std::size_t axis = kRankAxes; axis < kAxes; ++axis) {
    if (const auto text = line.take(to_text(Axis(axis)))) grid.degree[axis] = line.integer(*text);
  }
  const auto order = split(line.need("order"), ',');
  for (std::size_t i = 0; i < kRankAxes; ++i) grid.order[i] = line.named(order[i], Axis::pp);
  line.finish();
  return grid;
}

/// Leaves attributes that are not a tensor's for the caller.
Tensor parse_tensor(Line& line, std::size_t expected) {
  line.expect("tensor");
  if (line.tensor(line.word("tensor")) != TensorId(expected)) line.fail("tensors are not in order");
  Tensor tensor;
  tensor.name = line.word("name");
  const std::string type = line.word("dtype[shape]");
  const std::size_t bracket = std::min(type.find('['), type.size());
  tensor.dtype = line.named(type.substr(0, bracket), DType::e5m2);
  tensor.shape = parse_shape(line, std::string_view(type).substr(bracket));
  const std::string role = line.word("role");
  tensor.role = line.named(role, TensorRole::scalar);
  line.attributes();
  if (const auto text = line.take("block")) tensor.block = BlockId(line.index(*text));
  parse_layout(line, tensor);
  tensor.arena = line.take("arena").has_value();
  tensor.on_host = line.take("on_host").has_value();
  if (const auto text = line.take("gradient_group")) {
    tensor.gradient_group = line.known(group_from(*text), *text);
  }
  if (const auto text = line.take("filled")) tensor.filled = line.number<double>(*text);
  if (const auto text = line.take("element")) tensor.element = line.integer(*text);
  if (const auto text = line.take("gradient_of")) tensor.gradient_of = line.tensor(*text);
  if (const auto text = line.take("tied_to")) tensor.tied_to = line.tensor(*text);
  return tensor;
}

void parse_value(Line& line, const std::string& text, auto& value) { value = line.integer(text); }
void parse_value(Line& line, const std::string& text, double& value) {
  value = line.number<double>(text);
}
void parse_value(Line& line, const std::string& text, bool& value) {
  if (text != "true" && text != "false") line.fail("'" + text + "' is not true or false");
  value = text == "true";
}
void parse_value(Line& line, const std::string& text, Group& value) {
  value = line.known(group_from(text), text);
}
void parse_value(Line& line, const std::string& text, Reduction& value) {
  value = line.named(text, Reduction::max);
}
void parse_value(Line& line, const std::string& text, RotaryScaling& value) {
  value = line.named(text, RotaryScaling::yarn);
}

Op parse_op(Line line) {
  line.expect("op");
  Op op;
  const std::string kind = line.word("op kind"), phase = line.word("phase");
  op.kind = line.known(op_kind_from(kind), kind);
  op.phase = line.named(phase, Phase::optimizer);
  op.inputs = line.ids();
  line.expect("->");
  op.outputs = line.ids();
  line.attributes();
  if (const auto text = line.take("block")) op.block = BlockId(line.index(*text));
  if (const auto text = line.take("stream")) op.stream = line.named(*text, Stream::recv_previous);
  op.params = default_params(op.kind);
  std::visit(
      [&](auto& params) {
        fields(params, [&](std::string_view name, auto& field) {
          if (const auto text = line.take(name)) parse_value(line, *text, field);
        });
      },
      op.params);
  if (const auto text = line.take("waits")) {
    for (const std::string& part : split(*text, ','))
      op.waits.push_back(line.number<std::uint32_t>(part));
  }
  line.finish();
  return op;
}

/// Runs of layers: 0-4+6-10.
std::vector<std::int64_t> parse_layers(Line& line, const std::string& text) {
  std::vector<std::int64_t> layers;
  for (const std::string& run : split(text, '+')) {
    const auto ends = split(run, '-');
    const std::int64_t first = line.integer(ends[0]), last = line.integer(ends.back());
    for (std::int64_t layer = first; layer <= last; ++layer) layers.push_back(layer);
  }
  return layers;
}

Block parse_block(Line line, std::size_t expected) {
  line.expect("block");
  if (line.index(line.word("index")) != expected) line.fail("blocks are not in order");
  Block block;
  block.name = line.word("name");
  const std::string kind = line.word("kind"), count = line.word("xCOUNT");
  block.kind = line.named(kind, BlockKind::head);
  block.count = line.integer(std::string_view(count).substr(1));
  line.attributes();
  const auto border = [&](std::string_view key, std::optional<TensorId>& id) {
    if (const auto text = line.take(key)) id = line.tensor(*text);
  };
  if (const auto text = line.take("layers")) block.layers = parse_layers(line, *text);
  border("input", block.input);
  border("output", block.output);
  border("input_gradient", block.input_gradient);
  border("output_gradient", block.output_gradient);
  if (const auto text = line.take("variant_of")) block.variant_of = BlockId(line.index(*text));
  if (const auto text = line.take("parts")) block.parts = line.integer(*text);
  line.finish();
  return block;
}

Place parse_place(Line& line, const std::string& text) {
  const auto parts = split(text, '+');
  Place place;
  if (parts[0].starts_with("slot")) {
    place.slot = line.index(std::string_view(parts[0]).substr(4));
  } else if (parts[0] != "frame") {
    line.fail("expected frame or slotN, found '" + parts[0] + "'");
  }
  place.offset = Bytes(line.integer(parts[1]));
  return place;
}

Segment parse_segment(Line line) {
  line.expect("segment");
  Segment segment;
  segment.parameter = line.word("parameter");
  line.attributes();
  segment.layer = line.need_integer("layer");
  segment.shape = parse_shape(line, line.need("shape"));
  if (const auto text = line.take("type")) segment.dtype = line.named(*text, DType::e5m2);
  parse_layout(line, segment);
  segment.offset = line.need_integer("offset");
  segment.elements = line.need_integer("elements");
  segment.norm_weight = line.number<double>(line.need("norm_weight"));
  if (const auto text = line.take("group")) segment.group = line.integer(*text);
  if (const auto text = line.take("owner")) segment.owner = line.integer(*text);
  line.finish();
  return segment;
}

Buffer parse_buffer(Line line, std::size_t expected) {
  line.expect("buffer");
  if (line.index(line.word("index")) != expected) line.fail("buffers are not in order");
  Buffer buffer;
  buffer.name = line.word("name");
  const std::string role = line.word("role");
  buffer.role = line.named(role, TensorRole::scalar);
  line.attributes();
  buffer.bytes = line.need_bytes("bytes");
  buffer.begin = line.index(line.need("begin"));
  buffer.end = line.index(line.need("end"));
  buffer.offset = line.need_bytes("offset");
  buffer.persistent = line.take("persistent").has_value();
  buffer.on_host = line.take("on_host").has_value();
  line.finish();
  return buffer;
}

Binding parse_binding(const Line& line, std::string_view text) {
  const auto parts = split(text, '+');
  const auto offsets = split(parts[1], '*');
  Binding binding;
  binding.buffer = BufferId(line.index(parts[0]));
  binding.offset = Bytes(line.integer(offsets[0]));
  if (offsets.size() > 1) {
    const auto stride = split(offsets[1], '@');
    binding.shard_stride = Bytes(line.integer(stride[0]));
    if (stride.size() > 1) binding.stride_axis = line.named(stride[1], Axis::edp);
  }
  return binding;
}

Call parse_call(Line line, const Program& program) {
  line.expect("call");
  if (line.index(line.word("index")) != program.calls.size()) line.fail("calls are not in order");
  const std::size_t routine = line.index(line.word("routine"));
  if (routine >= program.routines.size()) line.fail("no routine " + std::to_string(routine));
  Call call;
  call.routine = RoutineId(routine);
  line.attributes();
  if (const auto text = line.take("layer")) call.layer = line.integer(*text);
  if (const auto text = line.take("micro_batch")) call.micro_batch = line.integer(*text);
  if (const auto text = line.take("part")) call.part = line.integer(*text);
  if (const auto text = line.take("bind")) {
    for (const std::string& part : split(*text, ','))
      call.bindings.push_back(parse_binding(line, part));
  }
  if (const auto text = line.take("waits")) {
    for (const std::string& part : split(*text, ',')) {
      const auto ends = split(part, '.');
      Wait wait{line.index(ends[0]), std::nullopt};
      if (ends.size() > 1) wait.port = line.index(ends[1]);
      call.waits.push_back(wait);
    }
  }
  if (const auto text = line.take("frame")) call.frame = BufferId(line.index(*text));
  line.finish();
  return call;
}

void parse_class(Line line, Program& program) {
  line.expect("class");
  line.attributes();
  program.stage = line.need_integer("stage");
  if (const auto text = line.take("owner")) program.owner = line.integer(*text);
  program.sharding_degree = line.need_integer("sharding_degree");
  program.micro_batch = line.need_integer("micro_batch");
  program.micro_batches = line.need_integer("micro_batches");
  program.arena_bytes = line.need_bytes("arena_bytes");
  line.finish();
}

Routine parse_routine_head(Line line, std::size_t expected) {
  line.expect("routine");
  if (line.index(line.word("index")) != expected) line.fail("routines are not in order");
  Routine routine;
  routine.name = line.word("name");
  const std::string phase = line.word("phase");
  routine.phase = line.named(phase, Phase::optimizer);
  line.attributes();
  routine.frame_bytes = line.need_bytes("frame_bytes");
  line.finish();
  return routine;
}

void parse_routine_line(Line line, Routine& routine) {
  if (line.starts_with("slot")) {
    line.expect("slot");
    const std::string kind = line.word("slot kind");
    line.attributes();
    Slot slot{line.named(kind, SlotKind::layer_choices), line.need_bytes("bytes"), {}};
    if (const auto text = line.take("entry")) slot.entry = line.index(*text);
    routine.slots.push_back(slot);
    line.finish();
  } else if (line.starts_with("tensor")) {
    routine.tensors.push_back(parse_tensor(line, routine.tensors.size()));
    routine.places.push_back(parse_place(line, line.need("at")));
    line.finish();
  } else if (line.starts_with("op")) {
    routine.ops.push_back(parse_op(line));
  } else {
    line.expect("port");
    const TensorId tensor = line.tensor(line.word("tensor"));
    line.attributes();
    routine.ports.push_back({tensor, line.number<std::uint32_t>(line.need("op"))});
    line.finish();
  }
}

/// Calls visit(line) for each line that is not empty and no comment (# ...).
template <class Visit>
void for_each_line(std::string_view text, const std::string& file, Visit&& visit) {
  std::size_t number = 0;
  for (const std::string& line_text : split(text, '\n')) {
    Line line(line_text, file, ++number);
    if (!line.empty() && !line.starts_with("#")) visit(line);
  }
}

}  // namespace

Graph parse_graph(std::string_view text, const std::string& file) {
  Graph graph;
  for_each_line(text, file, [&](Line line) {
    if (line.starts_with("graph")) {
      line.expect("graph");
      graph.name = line.rest();
    } else if (line.starts_with("grid")) {
      graph.grid = parse_grid(line);
    } else if (line.starts_with("block")) {
      graph.blocks.push_back(parse_block(line, graph.blocks.size()));
    } else if (line.starts_with("tensor")) {
      graph.tensors.push_back(parse_tensor(line, graph.tensors.size()));
      line.finish();
    } else {
      graph.ops.push_back(parse_op(line));
    }
  });
  return graph;
}

Program parse_program(std::string_view text, const std::string& file) {
  Program program;
  for_each_line(text, file, [&](Line line) {
    if (line.starts_with("program")) {
      line.expect("program");
      program.name = line.rest();
    } else if (line.starts_with("grid")) {
      program.grid = parse_grid(line);
    } else if (line.starts_with("class")) {
      parse_class(line, program);
    } else if (line.starts_with("routine")) {
      program.routines.push_back(parse_routine_head(line, program.routines.size()));
    } else if (line.starts_with("segment")) {
      program.segments.push_back(parse_segment(line));
    } else if (line.starts_with("bucket")) {
      line.expect("bucket");
      line.attributes();
      Bucket bucket{line.need_integer("begin"), line.need_integer("elements"), {}};
      if (const auto text = line.take("owner")) bucket.owner = line.integer(*text);
      bucket.experts = line.take("experts").has_value();
      program.buckets.push_back(bucket);
      line.finish();
    } else if (line.starts_with("buffer")) {
      program.buffers.push_back(parse_buffer(line, program.buffers.size()));
    } else if (line.starts_with("call")) {
      program.calls.push_back(parse_call(line, program));
    } else {
      if (program.routines.empty()) line.fail("expected a routine before this line");
      parse_routine_line(line, program.routines.back());
    }
  });
  return program;
}

}  // namespace plimsoll
